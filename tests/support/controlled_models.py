"""Models whose answers tell which copy of them has answered, and clients that go on asking."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from server_process import ServerProcess

_MODEL = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        with open(os.path.join(folder, "value.txt")) as file:
            self.value = float(file.read())
        with open(os.path.join(args["model_repository"], "..", "..", "begun.txt"), "a") as file:
            file.write(args["model_instance_name"] + "\\n")
        time.sleep(SLEEP_S)

    def execute(self, requests):
        answer = np.full((1, 1), self.value, np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer)]) for _ in requests]
"""

CONFIG = """
backend: "python"
max_batch_size: 4
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""


class ValueModel:
    """A Python model that answers with the number in its version's value.txt."""

    def __init__(self, repository: Path, name: str = "ver", sleep_s: float = 0, value: float = 1) -> None:
        self.name = name
        self.folder = repository / name
        self._sleep_s = sleep_s
        self._begun = repository.parent / "begun.txt"
        self.write_version(1, value)
        self.write_config("")

    def write_version(self, version: int, value: float) -> None:
        folder = self.folder / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "value.txt").write_text(str(value))
        (folder / "model.py").write_text(_MODEL.replace("SLEEP_S", str(self._sleep_s)))

    def write_config(self, more: str) -> None:
        (self.folder / "config.pbtxt").write_text(CONFIG + more)

    def break_version(self, version: int, text: str = "the weights are gone") -> None:
        folder = self.folder / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text(f"raise RuntimeError({text!r})")

    def begun(self) -> list[str]:
        """Return the names of the instances whose `initialize` has run, in order."""
        return self._begun.read_text().split() if self._begun.exists() else []


def touch(path: Path) -> None:
    """Give a file a time that it never had, whatever the clock's resolution is."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def http_ask(server: ServerProcess, name: str, version: str = "") -> Callable[[], float]:
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    tensor = tritonclient.http.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    return lambda: float(client.infer(name, [tensor], model_version=version).as_numpy("Y")[0, 0])


def grpc_ask(server: ServerProcess, name: str, version: str = "") -> Callable[[], float]:
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    return lambda: float(client.infer(name, [tensor], model_version=version).as_numpy("Y")[0, 0])


class Traffic:
    """Clients that ask without a pause, half of them by HTTP and half by gRPC; every failure is kept. Their versions go round:
    "" is the greatest.
    """

    def __init__(self, server: ServerProcess, name: str, count: int, versions: tuple[str, ...] = ("",)) -> None:
        self.answers: list[list[float]] = [[] for _ in range(count)]
        self.failures: list[str] = []
        self._is_over = threading.Event()
        asks = [(http_ask, grpc_ask)[number % 2] for number in range(count)]
        self._threads = [
            threading.Thread(
                target=self._run, args=(partial(make, server, name, versions[number // 2 % len(versions)]), answers)
            )
            for number, (make, answers) in enumerate(zip(asks, self.answers))
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        self.wait_round()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait_round(self) -> None:
        """Wait until each client has had another answer, asked for and given from now on."""
        counts = [len(answers) for answers in self.answers]
        deadline = time.monotonic() + 10
        while not self.failures and any(len(now) < before + 2 for now, before in zip(self.answers, counts)):
            assert time.monotonic() < deadline, "clients wait for their answers"
            self._is_over.wait(0.005)

    def _run(self, make: Callable[[], Callable[[], float]], answers: list[float]) -> None:
        try:
            ask = make()
            while not self._is_over.is_set():
                answers.append(ask())
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
