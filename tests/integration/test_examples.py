"""What a newcomer does first works: the example models can be made and served, each client gets its answers, the demo ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # the first run on a checkout fetches the real model

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CLIENTS = sorted((EXAMPLES / "clients").glob("*.py"))


def run(*command: str | Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    prepared = run(EXAMPLES / "prepare.py", timeout_s=120)
    assert prepared.returncode == 0, prepared.stderr
    server = ServerProcess(EXAMPLES / "models").wait_ready()
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("client", CLIENTS, ids=lambda path: path.stem)
def test_each_client_gets_its_answers(client: Path, server: ServerProcess) -> None:
    done = run(client, server.http)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_are_told_by_their_content(server: ServerProcess) -> None:
    files = ("README.md", "Makefile", "examples/prepare.py")
    done = run(EXAMPLES / "clients" / "file_type.py", server.http, *files)
    best = [line.split(": ")[1].split()[0] for line in done.stdout.splitlines()]
    assert best == ["markdown", "makefile", "python"], done.stdout + done.stderr


def test_requests_of_many_clients_run_together(server: ServerProcess) -> None:
    def totals() -> tuple[float, float]:
        names = ("nv_inference_request_success", "nv_inference_exec_count")
        success, executions = (server.metric(name, model="file_type") for name in names)
        return success, executions

    success, executions = totals()
    assert run(EXAMPLES / "clients" / "batched.py", server.http).returncode == 0
    more_success, more_executions = totals()
    assert more_success - success == 48
    assert more_executions - executions < 48


def test_each_address_that_the_server_shows_answers(server: ServerProcess) -> None:
    shown = shown_by(server)
    command = shown.pop("try").split()
    assert shown == {"HTTP": server.url, "docs": f"{server.url}/docs", "metrics": f"http://{server.metrics}/metrics"}
    assert requests.get(shown["docs"], timeout=10).headers["Content-Type"].startswith("text/html")
    assert requests.get(shown["metrics"], timeout=10).status_code == 200
    assert command[0] == "curl"
    assert requests.get(command[1], timeout=10).json()["name"] == "add_sub"


def test_what_listens_everywhere_is_shown_at_an_address_that_a_browser_opens(serve: Callable[..., ServerProcess]) -> None:
    server = serve(EXAMPLES / "models" / "identity", "--http-address=0.0.0.0")
    assert shown_by(server)["docs"] == f"http://localhost:{server.host_port[1]}/docs"


def shown_by(server: ServerProcess) -> dict[str, str]:
    """What the server prints for a person once it is ready, by the first word of each line."""
    wait_until(lambda: any(line.startswith("try ") for line in server.output), what="the last line of the start")
    return dict(line.split(maxsplit=1) for line in server.output if line.startswith(("HTTP ", "metrics ", "docs ", "try ")))


def test_the_prepared_files_are_not_made_again(server: ServerProcess) -> None:
    assert run(EXAMPLES / "prepare.py").stdout == ""


def test_the_demo_ends_well_and_leaves_nothing_running(server: ServerProcess) -> None:
    command = [sys.executable, EXAMPLES / "demo.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as demo:
        output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 0, output + errors
    ran = [line.split("/")[-1].split()[0] for line in output.splitlines() if line.startswith("$ python ")]
    assert ran == [client.name for client in CLIENTS]
    assert processes_of_session(demo.pid) == []


def processes_of_session(session: int) -> list[int]:
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            if os.getsid(pid) == session:
                found.append(pid)
    return found
