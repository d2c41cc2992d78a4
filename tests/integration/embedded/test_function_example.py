"""The example of a function works as its README says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "function"


def run(*command: str | Path) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@contextmanager
def serving(*command: str | Path) -> Iterator[str]:
    """Run a program that serves; yield its HTTP address, and see that it ends well on ^C."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=EXAMPLE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = ""
            for line in server.stdout:
                if line.startswith("NAIAD_LISTENING "):
                    address = json.loads(line.split(" ", 1)[1])["http"]
                if line.startswith("NAIAD_READY "):
                    break
            yield address
        finally:
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=20)
    assert server.returncode == 0, errors


def test_the_script_serves_its_function_to_the_client():
    with serving("serve.py", "--http-port=0", "--grpc-port=0", "--metrics-port=0") as address:
        run(EXAMPLE / "client.py", address)


def test_the_command_line_serves_it_in_a_worker_process():
    with serving("-m", "naiad", "serve", "serve:colors", "--http-port=0", "--grpc-port=0", "--metrics-port=0") as address:
        run(EXAMPLE / "client.py", address)


def test_it_is_called_without_a_socket():
    run(EXAMPLE / "in_process.py")
