"""Priorities and time-outs of requests, from a client's parameters to the queue that they are for, whatever way they take."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ensembles
import grpc
import grpc_models
import numpy as np
import pytest
import raw_http
import tritonclient.grpc
import tritonclient.http
from asking import Asked, Asker
from grpc_server import GrpcServer, stub
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from waiting import wait_until

LEVELS = "dynamic_batching { priority_levels: 3 default_priority_level: 2 }"
TIMED = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 allow_timeout_override: true } }"
BACKLOG = "sequence_batching { direct { } max_sequence_idle_microseconds: 20000000 }"
FOREVER = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }"
PASSES_ON = """
        given = json.loads(array(requests[0], "CALL").item())
        x = pb_utils.Tensor("X", array(requests[0], "X"))
        call = pb_utils.InferenceRequest(requested_output_names=["Y"], inputs=[x], **given)
        made = call.exec()
        if made.has_error():
            raise pb_utils.TritonModelException(made.error().message())
        return [answer(Y=made.output_tensors()[0].as_numpy())]
"""


class Bench:
    def __init__(self, server: ServerProcess, models: dict[str, ScriptedModel]) -> None:
        self.server = server
        self.askers = {name: Asker(server, model) for name, model in models.items()}
        self.occupied: list[Asked] = []
        self._last = 0

    def value(self) -> int:
        self._last += 1
        return self._last

    def occupy(self, model: str, **parameters: Any) -> tuple[Asker, Asked]:
        asker = self.askers[model]
        value = self.value()
        asker.model.hold(value)
        asked = asker.ask(value, **parameters)
        wait_until(lambda: asker.model.ran(value), what=f"the execution of {value}")
        self.occupied.append(asked)
        return asker, asked

    def call(self, value: float, **given: Any) -> tuple[int, Any]:
        """Have the model `calls` ask another one; return status and Y or the error."""
        inputs = [
            {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]},
            {"name": "CALL", "datatype": "BYTES", "shape": [1, 1], "data": [json.dumps(given)]},
        ]
        response = self.server.infer("calls", {"inputs": inputs})
        content = response.json()
        return response.status_code, content["outputs"][0]["data"] if response.ok else content["error"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory, serve_for_module) -> Bench:
    repository = tmp_path_factory.mktemp("models")
    configs = {"levels": LEVELS, "timed": TIMED, "backlog": BACKLOG, "forever": FOREVER}
    models = {name: ScriptedModel(repository, name, more, 1) for name, more in configs.items()}
    for name in ("levels", "timed"):
        ensembles.chain(repository, f"ens_{name}", [name], 1)
    io = (
        f"max_batch_size: 1 input [ {ensembles.tensor('X')}, {ensembles.tensor('CALL', 'STRING', '1')} ] "
        f"output [ {ensembles.tensor('Y')} ]"
    )
    ensembles.python_model(repository, "calls", "        import json\n" + PASSES_ON, io)
    return Bench(serve_for_module(repository, environment=ENVIRONMENT), models)


@pytest.fixture(autouse=True)
def _released(bench):
    yield
    for asker in bench.askers.values():
        asker.model.release()
        asker.wait_idle()
    for asked in bench.occupied:
        asked.hang_up()
    bench.occupied.clear()


def triton_ask(module: Any, address: Callable[[ServerProcess], str]) -> Callable[..., float]:
    """Return what asks with a client of Triton's; `more` are arguments of its `infer`."""

    def ask(server: ServerProcess, model: str, value: float, **more: Any) -> float:
        with module.InferenceServerClient(address(server)) as client:
            tensor = module.InferInput("X", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
            return float(client.infer(model, [tensor], **more).as_numpy("Y").item())

    return ask


CLIENTS = {
    "http": triton_ask(tritonclient.http, lambda server: server.http),
    "grpc": triton_ask(tritonclient.grpc, lambda server: server.grpc),
}


@pytest.fixture(params=list(CLIENTS))
def ask(request) -> Callable[..., float]:
    return CLIENTS[request.param]


@pytest.mark.parametrize("model", ["levels", "ens_levels"])
def test_a_client_s_priority_decides_who_is_served_first(bench, ask, model):
    asker, _ = bench.occupy("levels")
    values = {priority: bench.value() for priority in (3, 0, 1)}
    with ThreadPoolExecutor(3) as pool:
        answers = []
        for number, (priority, value) in enumerate(values.items(), 1):
            answers.append(pool.submit(ask, bench.server, model, value, priority=priority))
            wait_until(lambda number=number: asker.pending() == number)
        asker.model.release()
        assert [answer.result() for answer in answers] == list(values.values())
    assert [run[0] for run in asker.model.executions()[-3:]] == [values[1], values[0], values[3]]


@pytest.mark.parametrize("model", ["timed", "ens_timed"])
def test_a_client_s_time_out_ends_its_wait(bench, ask, model):
    asker, _ = bench.occupy("timed")
    value = bench.value()
    with pytest.raises((tritonclient.http.InferenceServerException, tritonclient.grpc.InferenceServerException)) as caught:
        ask(bench.server, model, value, timeout=20_000)
    assert "Request timeout expired" in caught.value.message()
    assert ("in ensemble 'ens_timed'" in caught.value.message()) == (model == "ens_timed")
    assert caught.value.status() in ("503", "StatusCode.UNAVAILABLE")
    assert asker.pending() == 0
    asker.model.release()
    assert ask(bench.server, model, bench.value(), timeout=5_000_000) == bench._last
    assert not asker.model.ran(value)


def test_the_time_out_of_a_nested_call_ends_its_wait(bench):
    asker, _ = bench.occupy("timed")
    status, text = bench.call(bench.value(), model_name="timed", timeout=20_000)
    assert (status, "Request timeout expired" in text) == (500, True)
    asker.model.release()
    assert bench.call(7, model_name="timed", timeout=5_000_000) == (200, [7])


@pytest.mark.parametrize("given", [{"timeout": -1}, {"timeout": 1.5}, {"timeout": "5"}, {"timeout": 2**64}, {"timeout": None}])
def test_a_nested_call_with_a_wrong_time_out_is_an_error_that_names_it_and_the_worker_lives(bench, given):
    status, text = bench.call(1, model_name="timed", **given)
    assert (status, "timeout" in text) == (500, True), text
    assert bench.call(2, model_name="timed") == (200, [2])
    assert "was killed" not in bench.server.log()


def test_a_sequence_s_time_out_ends_its_wait_for_a_slot(bench, ask):
    asker, occupied = bench.occupy("backlog", sequence_id=1, sequence_start=True, sequence_end=True)
    with pytest.raises(Exception, match="timeout of the corresponding sequence has been expired"):
        ask(bench.server, "backlog", bench.value(), timeout=20_000, sequence_id=2, sequence_start=True)
    asker.model.release()
    assert occupied.answer()[0] == 200


MOST = 2**64 - 1


@pytest.mark.parametrize("parameters", [{"priority": MOST}, {"timeout": MOST}, {"priority": 0, "timeout": 0}])
@pytest.mark.parametrize("model", ["levels", "timed", "forever"])
def test_the_greatest_values_are_taken(bench, model, parameters):
    asker, _ = bench.occupy(model)
    value = bench.value()
    (queued,) = asker.queue(value, **parameters)
    asker.model.release()
    assert queued.answer() == (200, [value])


def test_the_greatest_time_out_of_a_sequence_is_taken(bench):
    asker, _ = bench.occupy("backlog", sequence_id=1, sequence_start=True, sequence_end=True)
    value = bench.value()
    (queued,) = asker.queue(value, sequence_id=2, sequence_start=True, sequence_end=True, timeout=MOST)
    asker.model.release()
    assert queued.answer() == (200, [value])


@pytest.mark.parametrize("key", ["priority", "timeout"])
@pytest.mark.parametrize("value", [-1, "1", True, 1.5, None, [1], {}, 2**64, 10**40])
def test_over_http_a_wrong_value_is_refused_by_name(bench, key, value):
    status, text = bench.askers["timed"].ask(1, **{key: value}).answer()
    assert (status, f"parameter '{key}'" in text, f"from 0 to {MOST}" in text) == (400, True, True), text


WRONG = [
    ("priority", "int64_param", -1, "must be at least 0, got -1"),
    ("priority", "string_param", "1", "invalid type string_param, it must be int64_param or uint64_param"),
    ("priority", "bool_param", True, "invalid type bool_param"),
    ("priority", "double_param", 1.0, "invalid type double_param"),
    ("timeout", "int64_param", -(2**63), f"must be at least 0, got {-(2**63)}"),
    ("timeout", "string_param", "1", "invalid type string_param, it must be int64_param"),
    ("timeout", "bool_param", False, "invalid type bool_param"),
    ("timeout", "uint64_param", 5, "invalid type uint64_param"),
]


@pytest.mark.parametrize(("key", "kind", "value", "text"), WRONG)
def test_over_grpc_a_wrong_value_is_refused_by_name(bench, key, kind, value, text):
    request = grpc_models.request("timed", X=np.ones((1, 1), np.float32))
    setattr(request.parameters[key], kind, value)
    with GrpcServer(bench.server).channel() as channel, pytest.raises(grpc.RpcError) as caught:
        stub(channel).ModelInfer(request, timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"parameter '{key}'" in caught.value.details()
    assert text in caught.value.details()


def test_over_grpc_a_priority_may_be_signed_or_not(bench):
    with GrpcServer(bench.server).channel() as channel:
        for kind, value in (("int64_param", 3), ("uint64_param", MOST)):
            request = grpc_models.request("levels", X=np.ones((1, 1), np.float32))
            setattr(request.parameters["priority"], kind, value)
            assert stub(channel).ModelInfer(request, timeout=10).raw_output_contents


def test_generate_takes_neither_for_its_own(bench):
    """As with Triton, they are parameters for the model, so that those of language models may have these names."""
    with raw_http.Connection(bench.server.host_port) as client:
        status, _, body = client.send(
            raw_http.post("/v2/models/timed/generate", b'{"X": [3], "priority": -1, "timeout": "x"}')
        ).response()
    assert (status, json.loads(body)["Y"]) == (200, 3)
