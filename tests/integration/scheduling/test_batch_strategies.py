"""A class in the model's folder decides which requests run together, in a server with real clients."""

from __future__ import annotations

import json
import queue

import numpy as np
import pytest
import requests
import tritonclient.grpc
from asking import Asker
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

BATCHING = "dynamic_batching { }"
VOLUME = """
class BatchStrategy:
    def __init__(self, config):
        self.limit = int(config["parameters"]["volume"]["string_value"])

    def begin(self):
        return [0]

    def include(self, batch, request):
        batch[0] += float(request.inputs["X"].array.sum())
        return batch[0] <= self.limit
"""
RAISING = """
import sys

class BatchStrategy:
    def __init__(self, config):
        self.name = config["name"]

    def begin(self):
        return None

    def include(self, batch, request):
        if request.inputs["X"].array[0, 0] == 3:
            sys.exit("the end")
        return True
"""
PAIRS = """
class BatchStrategy:
    def __init__(self, config):
        self.name = config["name"]

    def begin(self):
        return []

    def include(self, batch, request):
        batch.append(request.id)
        return len(batch) <= 2
"""
PARAMETER = "TRITON_BATCH_STRATEGY_PATH"


class Bench:
    """A server with models that have strategies."""

    def __init__(self, repository, serve) -> None:
        self.repository = repository
        self.models = {
            "volume": ScriptedModel(repository, "volume", BATCHING, volume="10"),
            "raising": ScriptedModel(repository, "raising", BATCHING),
            "named": ScriptedModel(repository, "named", BATCHING, **{PARAMETER: "pairs.py"}),
            "changed": ScriptedModel(repository, "changed", BATCHING),
        }
        self.write("volume/batchstrategy.py", VOLUME)
        self.write("raising/1/batchstrategy.py", RAISING)
        self.write("named/pairs.py", PAIRS)
        self.write("changed/batchstrategy.py", PAIRS)
        self.server = serve(repository, "--model-control-mode=explicit", "--load-model=*", environment=ENVIRONMENT)

    def __getitem__(self, name: str) -> Asker:
        return Asker(self.server, self.models[name])

    def write(self, name: str, code: str) -> None:
        path = self.repository / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    def load(self, name: str) -> requests.Response:
        return requests.post(f"{self.server.url}/v2/repository/models/{name}/load", timeout=10)


@pytest.fixture(scope="module")
def bench(tmp_path_factory, serve_for_module) -> Bench:
    return Bench(tmp_path_factory.mktemp("models"), serve_for_module)


@pytest.fixture(autouse=True)
def _release_all(bench):
    yield
    for model in bench.models.values():
        model.release()


def run_behind(asker: Asker, first: float, *values: float) -> list[list[float]]:
    """Let `values` queue up behind `first`, run all, and return the executions after that of `first`."""
    occupied = asker.occupy(first)
    waiting = asker.queue(*values)
    before = len(asker.model.executions())
    asker.model.release(first)
    assert [asked.answer() for asked in [occupied, *waiting]] == [(200, [float(value)]) for value in (first, *values)]
    return asker.model.executions()[before:]


def test_a_volume_of_requests_fills_a_batch(bench):
    asker = bench["volume"]
    assert run_behind(asker, 9, 4, 5, 2, 8, 11, 1) == [[4, 5], [2, 8], [11], [1]]
    assert asker.metric("naiad_batches_total", reason="custom") == 3
    assert asker.metric("naiad_batch_strategy_faults_total", reason="error") == 0


def test_requests_of_tritons_client_are_joined_by_the_strategy(bench):
    asker = bench["volume"]
    occupied = asker.occupy(200)
    client = bench.server.clients.enter_context(tritonclient.grpc.InferenceServerClient(bench.server.grpc))
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    for _ in range(8):
        tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), 3, np.float32))
        client.async_infer("volume", [tensor], lambda result, error: answers.put((result, error)))
    wait_until(lambda: asker.pending() == 8, what="8 requests in the queue")
    before = len(asker.model.executions())
    asker.model.release(200)
    ended = [answers.get(timeout=10) for _ in range(8)]
    assert [(error, result.as_numpy("Y").tolist()) for result, error in ended] == [(None, [[3]])] * 8
    assert occupied.answer() == (200, [200])
    assert asker.model.executions()[before:] == [[3, 3, 3], [3, 3, 3], [3, 3]]


def test_a_strategy_may_lie_where_a_parameter_says(bench):
    assert run_behind(bench["named"], 0, 1, 2, 3, 4, 5) == [[1, 2], [3, 4], [5]]


def test_a_strategy_that_wants_to_end_the_server_closes_the_batch_and_is_logged(bench):
    asker = bench["raising"]
    assert run_behind(asker, 0, 1, 2, 3, 4, 5) == [[1, 2], [3], [4, 5]]
    assert asker.metric("naiad_batch_strategy_faults_total", reason="error") == 2
    assert "batchstrategy.py: include() failed, the batch is closed" in bench.server.log()
    assert "SystemExit: the end" in bench.server.log()


def test_a_reload_takes_the_file_as_it_is_then_and_a_bad_one_changes_nothing(bench):
    asker = bench["changed"]
    assert run_behind(asker, 0, 1, 2, 3, 4) == [[1, 2], [3, 4]]
    bench.write("changed/batchstrategy.py", PAIRS.replace("<= 2", "<= 3"))
    assert bench.load("changed").status_code == 200
    assert run_behind(asker, 0, 1, 2, 3, 4) == [[1, 2, 3], [4]]
    bench.write("changed/batchstrategy.py", PAIRS.replace("begin", "start"))
    refused = bench.load("changed")
    assert refused.status_code == 400
    assert "batchstrategy.py, line 3: class BatchStrategy has no method begin(self)" in refused.json()["error"]
    assert run_behind(asker, 0, 1, 2, 3, 4) == [[1, 2, 3], [4]]


def test_a_latency_target_beside_a_strategy_is_refused_as_one_of_them_would_have_no_effect(bench):
    model = f"{bench.server.url}/v2/models/volume/config"
    config = requests.get(model, timeout=10).json()
    config["parameters"]["naiad_latency_target_ms"] = {"string_value": "20"}
    address = f"{bench.server.url}/v2/repository/models/volume/load"
    refused = requests.post(address, json={"parameters": {"config": json.dumps(config)}}, timeout=10)
    assert refused.status_code == 400
    assert "'naiad_latency_target_ms' for volume has no effect: its batch strategy decides" in refused.json()["error"]
    assert run_behind(bench["volume"], 9, 4, 5, 2) == [[4, 5], [2]]
