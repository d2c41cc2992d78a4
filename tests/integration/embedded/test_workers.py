"""Python models of a repository in a program's own server: their worker processes come and go with it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from model_folders import write_model
from process_facts import facts
from waiting import wait_until

import naiad
from naiad import InferenceServerError

CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]
instance_group [{ kind: KIND_CPU }]
"""

MODEL = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() for request in requests]
        if any((array < 0).any() for array in arrays):
            os._exit(7)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array * 2)]) for array in arrays]
"""

PROGRAM = """
import sys
import naiad
naiad.Server(http=False, model_repository=sys.argv[1]).start()
"""


def write(repository: Path, code: str = MODEL) -> Path:
    folder = write_model(repository, "m", CONFIG)
    (folder / "1" / "model.py").write_text(code)
    return folder


def ask(server: naiad.Server, value: float) -> list:
    return server.models["m"].infer({"X": np.array([[value]], np.float32)})["Y"].tolist()


def test_nothing_is_left_of_workers(tmp_path):
    folder = write(tmp_path)

    def use() -> None:
        with naiad.Server(http=False, model_repository=folder) as server:
            assert ask(server, 1) == [[2]]

    def left() -> tuple[int, int, int]:
        gc.collect()
        now = facts(os.getpid())
        return now.descriptors, now.threads, now.children

    others = left()[2]  # Other tests' children, which may end meanwhile.
    use()
    wait_until(lambda: left()[2] <= others)
    before = left()
    for _ in range(3):
        use()
    wait_until(
        lambda: all(now <= then for now, then in zip(left(), before)),
        what=f"descriptors, threads and children to be {before} again",
    )


def test_a_worker_that_dies_comes_back(tmp_path):
    with naiad.Server(http=False, model_repository=write(tmp_path)) as server:
        with pytest.raises(InferenceServerError, match="7"):
            ask(server, -1)
        model = server.models["m"]
        wait_until(model.is_ready, what="the worker to come back")
        assert ask(server, 3) == [[6]]


def test_an_interrupt_while_models_load_leaves_no_worker(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    folder = write(tmp_path, f"open({str(gate)!r}).read()\n{MODEL}")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, folder], stderr=subprocess.PIPE, text=True) as program:
        # Opens as soon as the model is being imported, and lets the import end.
        with gate.open("w"):
            workers = psutil.Process(program.pid).children(recursive=True)
            program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=20)
    assert workers
    assert "KeyboardInterrupt" in errors
    assert program.returncode == -signal.SIGINT
    wait_until(lambda: not [worker for worker in workers if worker.is_running()])
