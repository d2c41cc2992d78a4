"""Models whose `execute` is a coroutine function: their worker stays, whichever of their batches is done first, or raises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from python_models import IO, Config, write_python_model
from server_process import ServerProcess

SOME_WAIT = """
import asyncio
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        if requests[0].inputs()[0].as_numpy()[0, 0] % 20 == 0:
            await asyncio.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())]) for request in requests]
"""
RAISES_LATE = """
import asyncio
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([os.getpid()], np.int64))]))
        await asyncio.sleep(0)
        raise ValueError("too late")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "some_wait", SOME_WAIT, Config((IO("X"),), (IO("Y"),), 1))
    write_python_model(repository, "late", RAISES_LATE, Config((IO("X"),), (IO("PID", "INT64", "1"),), 0, is_decoupled=True))
    return serve_for_module(repository)


def test_short_batches_that_others_overtake_are_answered_by_one_worker(server):
    def ask(number: int) -> float:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [number]}]}
        return server.infer("some_wait", body).json()["outputs"][0]["data"][0]

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(ask, range(1, 801))) == list(range(1, 801))
    assert "naiad_worker_restarts_total{" not in requests.get(f"http://{server.metrics}/metrics", timeout=10).text


def test_a_decoupled_model_that_raises_late_ends_its_request_and_stays(server):
    def stream() -> str:
        return requests.post(f"{server.url}/v2/models/late/generate_stream", json={"X": [1]}, timeout=10).text

    first, second = stream(), stream()
    assert "ValueError: too late" in first
    assert second == first
