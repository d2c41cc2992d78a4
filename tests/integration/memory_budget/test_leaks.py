"""Rounds of unloading and loading at requests leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_models
import psutil
import pytest
from controlled_models import http_ask
from limited_memory import demand_loads, evictions, resident, value_models
from onnx import TensorProto, helper, numpy_helper
from process_facts import facts
from waiting import wait_until

NAMES = ("a", "b")
WEIGHTS = 5_000_000
WEIGHT_BYTES = 4 * WEIGHTS
# Loading and closing have up to 4 threads each, which stay.
POOLED_THREADS = 8


def write_python(models: Path) -> str:
    value_models(models, *NAMES)
    return "--model-memory-limit=150MB"


def write_onnx(models: Path) -> str:
    """Models with 20 MB of weights, of which each picks one: 1 and 2."""
    for number, name in enumerate(NAMES, 1):
        weights = numpy_helper.from_array(np.full(WEIGHTS, number, np.float32), "W")
        nodes = [helper.make_node("Cast", ["X"], ["I"], to=TensorProto.INT64), helper.make_node("Gather", ["W", "I"], ["Y"])]
        ends = [[onnx_models.value(tensor, "FP32", ("n", 1))] for tensor in "XY"]
        onnx_models.save(onnx_models.model(nodes, *ends, [weights]), models / name / "1" / "model.onnx")
    return "--model-memory-limit=38MB"


def total_bytes(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("write", "workers"), [(write_python, 1), (write_onnx, 0)])
def test_fifty_evictions_leave_no_files_threads_processes_and_memory(tmp_path, serve, write, workers):
    limit = write(tmp_path / "models")
    server = serve(tmp_path / "models", limit)
    asks = [http_ask(server, name) for name in NAMES]

    def run(rounds: int) -> None:
        for _ in range(rounds):
            assert [ask() for ask in asks] == [1, 2]

    run(8)
    wait_until(lambda: facts(server.pid).children == workers)
    before, memory_before = facts(server.pid), total_bytes(server.pid)
    run(18)
    wait_until(lambda: facts(server.pid).children == workers)
    wait_until(lambda: facts(server.pid).descriptors <= before.descriptors)
    assert facts(server.pid).threads <= before.threads + POOLED_THREADS
    assert total_bytes(server.pid) < memory_before * 1.1 + 30e6
    assert (resident(server, *NAMES), sum(evictions(server, *NAMES)) >= 50) == (["b"], True)
    assert sum(demand_loads(server, *NAMES)) >= 51


def test_a_model_of_an_engine_takes_its_weights_at_least(tmp_path, serve):
    write_onnx(tmp_path / "models")
    server = serve(tmp_path / "models", "--model-memory-limit=1G")
    taken = [server.metric("naiad_model_memory_bytes", model=name) for name in NAMES]
    assert all(WEIGHT_BYTES < size_bytes < 3 * WEIGHT_BYTES for size_bytes in taken), taken
