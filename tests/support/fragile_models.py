"""A server with fragile Python models, what a test asks of them, and what the system knows of their workers.

The models are `python_models/sources/fragile.py` and `fragile_stream.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests
from process_facts import is_alive
from python_models import Config, source, write_python_model
from server_process import ServerProcess
from waiting import wait_until

TIMEOUT_S = 15
SHARED = ("/memfd:", "/dev/shm/")
READY_GAUGES = ("nv_inference_pending_request_count", "naiad_running_requests")


def write_fragile(repository: Path, name: str = "fragile", more: str = "", *, instances: int = 1, **parameters: str) -> Path:
    """Write the fragile model; `parameters` are those of its config."""
    text = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters.items())
    return write_python_model(repository, name, source("fragile"), Config(more=more + text, instance_count=instances))


def write_fragile_stream(repository: Path, name: str = "stream") -> Path:
    """Write the decoupled one."""
    return write_python_model(repository, name, source("fragile_stream"), Config(max_batch_size=0, is_decoupled=True))


@dataclass(frozen=True, slots=True)
class Left:
    """What a server holds. Shared memory, as descriptors or mapped, is counted apart: a worker gets it when it needs it."""

    descriptors: int
    children: int
    threads: int
    shared_memory: int


class Fragile:
    """One model of a server, asked over HTTP. `folder` is where it leaves its notes."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.name = folder.name

    def ask(self, *values: float, **parameters: Any) -> requests.Response:
        """Send one request and wait for its answer."""
        body = {
            "inputs": [{"name": "X", "shape": [1, len(values)], "datatype": "FP32", "data": list(values)}],
            "parameters": parameters,
        }
        return requests.post(f"{self.server.url}/v2/models/{self.name}/infer", json=body, timeout=TIMEOUT_S)

    def stream(self, *values: float, **parameters: Any) -> list[dict[str, Any]]:
        """Ask for a stream and return its events; an answer that is no stream is one event with its error."""
        body = {"X": list(values), **parameters}
        answer = requests.post(f"{self.server.url}/v2/models/{self.name}/generate_stream", json=body, timeout=TIMEOUT_S)
        if answer.status_code != 200:
            return [answer.json()]
        return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]

    def answers(self, value: float = 1) -> bool:
        """Return whether a good request gets its right answer."""
        response = self.ask(value)
        return response.status_code == 200 and outputs(response) == [2 * value]

    def is_ready(self) -> bool:
        """Return whether the server says that the model is ready."""
        return requests.get(f"{self.server.url}/v2/models/{self.name}/ready", timeout=TIMEOUT_S).status_code == 200

    def note(self, name: str) -> str | None:
        """Return what the note `name` says, None when there is none."""
        path = self.folder / name
        return path.read_text() if path.exists() else None

    def wait_note(self, name: str) -> None:
        """Wait until the model has left the note `name`."""
        wait_until(lambda: self.note(name) is not None, what=f"the note {name}")

    def put(self, name: str) -> Path:
        """Leave a note for the model."""
        path = self.folder / name
        path.touch()
        return path

    def worker(self, instance: int = 0) -> int:
        """Return the process number of the worker of an instance, as soon as there is one."""
        wanted = f"{self.name}_0_{instance}"
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid, name in workers(self.server) if name == wanted]
            return bool(found)

        wait_until(is_there, what=f"a worker of {wanted}")
        return found[0]

    def is_at_rest(self) -> bool:
        """Return whether no request is queued or runs."""
        return all(self.server.metric(gauge, model=self.name) == 0 for gauge in READY_GAUGES)

    def restarts(self) -> float:
        """Return how many workers have died, whatever the reason."""
        text = requests.get(f"http://{self.server.metrics}/metrics", timeout=TIMEOUT_S).text
        lines = [line for line in text.splitlines() if line.startswith("naiad_worker_restarts_total{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'model="{self.name}"' in line)


def outputs(response: requests.Response) -> list[float]:
    """Return the values of an answer's first output."""
    assert response.status_code == 200, response.text
    return list(response.json()["outputs"][0]["data"])


def error(response: requests.Response) -> str:
    """Return the text of an answer that is an error."""
    assert response.status_code >= 400, response.text
    return str(response.json()["error"])


def workers(server: ServerProcess) -> list[tuple[int, str]]:
    """Return process number and instance name of every live worker of a server."""
    found = []
    for child in psutil.Process(server.pid).children():
        try:
            command = child.cmdline()
        except psutil.NoSuchProcess:
            continue
        if len(command) > 2 and command[1].endswith("worker/__main__.py") and is_alive(child.pid):
            found.append((child.pid, command[-1]))
    return found


def left(server: ServerProcess) -> Left:
    """Return what the server holds now."""
    process = psutil.Process(server.pid)
    files = [opened for entry in Path(f"/proc/{server.pid}/fd").iterdir() if (opened := target(entry))]
    descriptors = sum(not name.startswith(SHARED) for name in files)
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    shared = len(files) - descriptors + sum(maps.count(start) for start in SHARED)
    return Left(descriptors, len(process.children(recursive=True)), process.num_threads(), shared)


def target(descriptor: Path) -> str:
    """Return what a descriptor in /proc leads to, "" when it was closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


@contextmanager
def many(count: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads for requests that are sent at once."""
    with ThreadPoolExecutor(count) as pool:
        yield pool


def results(futures: Sequence[Future[requests.Response]]) -> list[requests.Response]:
    """Return what came, in order."""
    return [future.result(TIMEOUT_S) for future in futures]
