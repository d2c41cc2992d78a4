"""Case 11 in short: rounds of unload and load, and of loading again, leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_models
import psutil
import pytest
from controlled_models import ValueModel, http_ask, touch
from model_folders import identity
from onnx import TensorProto, helper, numpy_helper
from process_facts import facts
from waiting import wait_until

UNLOAD_FIRST, LOAD_AGAIN = "unload and load", "load again"
WEIGHTS = 5_000_000
# Looking, loading and closing have up to 4 threads each, which are started when so much is done at once and stay then.
POOLED_THREADS = 12


def write_identity(models: Path) -> Path:
    return identity(models, "m") / "config.pbtxt"


def write_python(models: Path) -> Path:
    return ValueModel(models, "m").folder / "config.pbtxt"


def write_onnx(models: Path) -> Path:
    """A model with 20 MB of weights, of which it picks one."""
    weights = numpy_helper.from_array(np.ones(WEIGHTS, np.float32), "W")
    nodes = [helper.make_node("Cast", ["X"], ["I"], to=TensorProto.INT64), helper.make_node("Gather", ["W", "I"], ["Y"])]
    dims = ("n", 1)
    made = onnx_models.model(nodes, [onnx_models.value("X", "FP32", dims)], [onnx_models.value("Y", "FP32", dims)], [weights])
    return onnx_models.save(made, models / "m" / "1" / "model.onnx")


def holdings(pid: int) -> tuple[int, int, int, int]:
    """Return what a leak makes grow: open files, threads, processes, segments of shared memory."""
    seen = facts(pid)
    segments = sum("/dev/shm" in item.path or "memfd" in item.path for item in psutil.Process(pid).memory_maps())
    return seen.descriptors, seen.threads, seen.children, segments


def total_bytes(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", [UNLOAD_FIRST, LOAD_AGAIN])
@pytest.mark.parametrize(("write", "rounds"), [(write_identity, 50), (write_onnx, 50), (write_python, 21)])
def test_rounds_leave_no_files_threads_processes_and_memory(tmp_path, serve, http_control, write, rounds, mode):
    changed = write(tmp_path / "models")
    server = serve(tmp_path / "models", "--model-control-mode=explicit", "--load-model=m")
    client, ask = http_control(server), http_ask(server, "m")

    def run(count: int) -> None:
        for _ in range(count):
            if mode == UNLOAD_FIRST:
                client.unload("m")
                wait_until(lambda: client.states("m") == {"1": "UNAVAILABLE"})
            touch(changed)
            client.load("m")
            ask()

    def is_one_copy_left() -> bool:
        return facts(server.pid).children == (write is write_python)

    run(rounds // 3)
    wait_until(is_one_copy_left)
    before, memory_before = holdings(server.pid), total_bytes(server.pid)
    run(rounds - rounds // 3)
    wait_until(is_one_copy_left)
    most = (before[0], before[1] + POOLED_THREADS, *before[2:])
    wait_until(lambda: all(now <= then for now, then in zip(holdings(server.pid), most)), what=f"no more than {most}")
    assert total_bytes(server.pid) < memory_before * 1.1 + 30e6
