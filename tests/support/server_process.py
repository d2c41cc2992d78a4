"""A real `naiad serve` process for tests: started on ports that the system chooses, stopped by its own id."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests

LISTENING = "NAIAD_LISTENING "
READY = "NAIAD_READY "


class ServerProcess:
    """One server. `http` and `metrics` are host:port; `output` and `errors` hold its lines so far.

    `clients` closes what tests open to ask it when it has ended: left to the garbage collector, a client's sockets may
    be collected before the client, in whatever test runs then.
    """

    def __init__(
        self,
        *arguments: str | Path,
        environment: dict[str, str] | None = None,
        directory: Path | None = None,
        open_files: int | None = None,
    ) -> None:
        # The shell lowers the limit for the server alone: this process may hold more files than that.
        limit = [] if open_files is None else ["/bin/sh", "-c", 'ulimit -S -n "$0" && exec "$@"', str(open_files)]
        command = [
            *limit,
            sys.executable,
            "-m",
            "naiad",
            "serve",
            "--http-port=0",
            "--grpc-port=0",
            "--metrics-port=0",
            *map(str, arguments),
        ]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=directory,
        )
        self.clients = ExitStack()
        self.output: list[str] = []
        self.errors: list[str] = []
        self.http = self.grpc = self.metrics = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def host_port(self) -> tuple[str, int]:
        host, port = self.http.rsplit(":", 1)
        return host, int(port)

    def wait_listening(self) -> ServerProcess:
        addresses = json.loads(self._wait_line(LISTENING))
        self.http, self.grpc, self.metrics = (addresses.get(name, "") for name in ("http", "grpc", "metrics"))
        return self

    def wait_ready(self, within_s: float = 20) -> ServerProcess:
        if not self.http:
            self.wait_listening()
        self._wait_line(READY, within_s)
        return self

    def infer(self, model: str, body: dict[str, Any], **more: Any) -> requests.Response:
        return requests.post(f"{self.url}/v2/models/{model}/infer", json=body, timeout=10, **more)

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of the one series of `name` with these labels."""
        text = requests.get(f"http://{self.metrics}/metrics", timeout=10).text
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith((f"{name}{{", f"{name} ")) and all(f'{key}="{value}"' in line for key, value in labels.items())
        ]
        assert len(found) == 1, f"{len(found)} series {name} {labels} in:\n{text}"
        return found[0]

    def stop(self, signal_number: int = signal.SIGTERM, timeout_s: float = 15) -> int:
        """Send a signal unless it has ended, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 15) -> int:
        """Wait for the end and return the exit code; a server that doesn't end is killed and is a failure."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end within {timeout_s} s:\n{self.log()}") from None
        finally:
            self.clients.close()
            for reader in self._readers:
                reader.join(5)
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
        return code

    def log(self) -> str:
        return "\n".join([*self.output, *self.errors])

    def _wait_line(self, mark: str, within_s: float = 20) -> str:
        while (line := self._lines.get(timeout=within_s)) is not None:
            if line.startswith(mark):
                return line[len(mark) :]
        raise AssertionError(f"the server ended before it said {mark}:\n{self.log()}")

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.rstrip("\n"))


def failed_start(*arguments: object) -> str:
    """Run a server that must not start; return what it says."""
    command = [sys.executable, "-m", "naiad", "serve", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert (ended.returncode, ended.stdout, "Traceback" in ended.stderr) == (1, "", False), ended
    return ended.stderr
