"""Processes that are killed while models load: nothing of them stays, and what can be loaded is loaded the next time."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest
import requests
from controlled_models import CONFIG, ValueModel, http_ask
from google.protobuf import text_format
from model_folders import identity
from process_facts import is_alive
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from waiting import wait_until

from naiad.config.json_form import to_json
from naiad.proto import message_class

EXPLICIT = "--model-control-mode=explicit"

# Says its number and waits: in its import, in its auto_complete_config or in its initialize.
_WAITS = """
import os, time
from pathlib import Path

def wait(where):
    if where == {where!r}:
        Path({notes!r}, where).write_text(str(os.getpid()))
        time.sleep(3600)

wait("import")

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        wait("auto_complete")
        return config

    def initialize(self, args):
        wait("initialize")

    def execute(self, requests):
        return []
"""


def write_waiting(models: Path, notes: Path, where: str) -> bytes:
    folder = models / "waits" / "1"
    folder.mkdir(parents=True)
    notes.mkdir(exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    code = _WAITS.format(where=where, notes=str(notes))
    (folder / "model.py").write_text(code)
    return code.encode()


def config_json() -> str:
    config = message_class("inference.ModelConfig")()
    text_format.Parse(CONFIG, config)
    return json.dumps(to_json(config))


def noted(path: Path) -> bool:
    return path.exists() and path.read_text() != ""


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "naiad" in path.name}


@pytest.mark.parametrize("where", ["import", "auto_complete", "initialize"])
def test_a_server_killed_while_it_loads_leaves_no_process_and_no_memory(tmp_path, where):
    write_waiting(tmp_path / "models", tmp_path / "notes", where)
    held = ScriptedModel(tmp_path / "models", "held")
    held.hold("load")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = shared_memory()
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    server = ServerProcess(tmp_path / "models", "--isolate-load=true", environment=environment).wait_listening()
    wait_until(lambda: noted(tmp_path / "notes" / where) and held.loaders())
    processes = psutil.Process(server.pid).children(recursive=True)
    assert len(processes) == 2
    server.stop(signal.SIGKILL)
    assert psutil.wait_procs(processes, 5)[1] == []
    assert list(temporary.iterdir()) == []
    assert shared_memory() == before


def test_uploaded_files_of_a_killed_server_are_removed_at_the_next_start_and_those_of_a_live_one_are_not(tmp_path, serve):
    code = write_waiting(tmp_path / "other", tmp_path / "notes", "initialize")
    identity(tmp_path / "models", "echo")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    flags = (tmp_path / "models", EXPLICIT, "--allow-model-upload=true")
    killed, live = (ServerProcess(*flags, environment={"TMPDIR": str(temporary)}).wait_ready() for _ in range(2))
    clients = []
    for server in (killed, live):
        (tmp_path / "notes" / "initialize").unlink(missing_ok=True)
        clients.append(threading.Thread(target=upload, args=(server, code)))
        clients[-1].start()
        wait_until(lambda: noted(tmp_path / "notes" / "initialize"))
    try:
        assert len(list(temporary.glob("naiad-model-*"))) == 2
        worker = psutil.Process(killed.pid).children()
        killed.stop(signal.SIGKILL)
        assert psutil.wait_procs(worker, 5)[1] == []
        serve(*flags, environment={"TMPDIR": str(temporary)})
        wait_until(lambda: len(list(temporary.glob("naiad-model-*"))) == 1)
        [kept] = temporary.glob("naiad-model-*/waits/1/model.py")
        assert kept.read_bytes() == code
    finally:
        live.stop()
        for client in clients:
            client.join()
    wait_until(lambda: list(temporary.iterdir()) == [])


def upload(server: ServerProcess, code: bytes) -> None:
    parameters = {"config": config_json(), "file:1/model.py": base64.b64encode(code).decode()}
    url = f"{server.url}/v2/repository/models/waits/load"
    try:
        requests.post(url, json={"parameters": parameters}, timeout=30)
    except requests.exceptions.ConnectionError:
        return  # The server was killed.


@pytest.mark.parametrize("where", ["import", "auto_complete", "initialize"])
def test_a_worker_killed_while_it_loads_fails_its_model_at_once_and_only_that(tmp_path, serve, where):
    write_waiting(tmp_path / "models", tmp_path / "notes", where)
    other = ValueModel(tmp_path / "models")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=ver")
    load = f"{server.url}/v2/repository/models/waits/load"
    notes = tmp_path / "notes" / where
    killer = threading.Thread(
        target=lambda: (wait_until(lambda: noted(notes)), os.kill(int(notes.read_text()), signal.SIGKILL))
    )
    killer.start()
    failed = requests.post(load, timeout=10)
    assert (failed.status_code, "was killed by SIGKILL" in failed.json()["error"]) == (400, True)
    killer.join()
    assert http_ask(server, "ver")() == 1
    wait_until(lambda: not is_alive(int(notes.read_text())))
    assert len(psutil.Process(server.pid).children()) == 1
    # The next load begins anew.
    (tmp_path / "models" / "waits" / "1" / "model.py").write_text((other.folder / "1" / "model.py").read_text())
    (tmp_path / "models" / "waits" / "1" / "value.txt").write_text("5")
    assert requests.post(load, timeout=10).status_code == 200
    assert http_ask(server, "waits")() == 5
