"""Queue deadlines over gRPC fire on time and a queue's limit is exact, unary and on streams, whatever the model is doing."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from grpc_models import request
from grpc_server import GrpcServer, stub
from queue_policies import LATE_S, TIMEOUT_S, policy
from scripted_models import ENVIRONMENT, ScriptedModel
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_until


class Asker:
    """Asks one model; its calls end as (value or text, seconds after the call)."""

    def __init__(self, server: GrpcServer, model: ScriptedModel, asks: Any) -> None:
        self.server, self.model, self.asks = server, model, asks

    def message(self, value: float, timeout_us: int = 0) -> pb.ModelInferRequest:
        made = request(self.model.name, str(value), X=np.array([[value]], np.float32))
        if timeout_us:
            made.parameters["timeout"].int64_param = timeout_us
        return made

    def ask(self, value: float, timeout_us: int = 0) -> Future:
        ended: Future = Future()
        began = time.monotonic()

        def note(call: Any) -> None:
            error = call.exception()
            after_s = time.monotonic() - began
            said = f"{error.code().name} {error.details()}" if error else call.result().id
            ended.set_result((said, after_s))

        self.asks.ModelInfer.future(self.message(value, timeout_us)).add_done_callback(note)
        return ended

    def occupy(self, value: float) -> Future:
        self.model.hold(value)
        occupied = self.ask(value)
        wait_until(lambda: self.model.ran(value), what=f"the execution of {value}")
        return occupied

    def metric(self, name: str, **labels: str) -> float:
        return self.server.process.metric(name, model=self.model.name, **labels)


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = [
        ScriptedModel(repository, "one", policy("REJECT"), 1),
        ScriptedModel(repository, "four", policy("REJECT"), 4),
        ScriptedModel(repository, "delay", policy("DELAY"), 1),
    ]
    server = GrpcServer(serve_for_module(repository, environment=ENVIRONMENT))
    with server.channel() as channel:
        yield {model.name: Asker(server, model, stub(channel)) for model in made}
    for model in made:
        model.release()


@pytest.mark.parametrize("name", ["one", "four"])
def test_two_wait_until_their_deadline_and_the_others_are_refused_at_once(models, name):
    asker = models[name]
    occupied = asker.occupy(0)
    ended = [each.result(5) for each in [asker.ask(value) for value in (1, 2, 3, 4)]]
    refused = [after_s for text, after_s in ended if text.startswith("UNAVAILABLE") and "Exceeds maximum queue size" in text]
    expired = [after_s for text, after_s in ended if text.startswith("UNAVAILABLE") and "Request timeout expired" in text]
    assert (len(refused), len(expired)) == (2, 2), ended
    assert max(refused) < LATE_S
    assert TIMEOUT_S - 0.005 <= min(expired) <= max(expired) < TIMEOUT_S + LATE_S
    assert asker.metric("naiad_running_requests") == 1
    assert asker.metric("nv_inference_pending_request_count") == 0
    asker.model.release()
    assert occupied.result(5)[0] == "0"
    assert asker.model.executions() == [[0]]
    assert asker.metric("nv_inference_request_failure", reason="REJECTED") == 2


def test_an_override_only_shortens(models):
    asker = models["four"]
    occupied = asker.occupy(10)
    shorter, longer = asker.ask(11, 100_000), asker.ask(12, 900_000)
    assert 0.095 <= shorter.result(5)[1] < 0.1 + LATE_S
    assert TIMEOUT_S - 0.005 <= longer.result(5)[1] < TIMEOUT_S + LATE_S
    asker.model.release()
    assert occupied.result(5)[0] == "10"
    assert not asker.model.ran(11)
    assert not asker.model.ran(12)


def test_on_a_stream_the_refusals_come_on_time_and_in_their_places(models):
    asker = models["one"]
    occupied = asker.occupy(20)
    call = asker.asks.ModelStreamInfer(iter([asker.message(value) for value in (21, 22, 23)]), timeout=10)
    began = time.monotonic()
    answers = list(call)
    after_s = time.monotonic() - began
    assert [each.infer_response.id for each in answers] == ["21", "22", "23"]
    assert ["Request timeout expired" in each.error_message for each in answers] == [True, True, False]
    assert "Exceeds maximum queue size" in answers[2].error_message
    assert TIMEOUT_S - 0.005 <= after_s < TIMEOUT_S + LATE_S
    asker.model.release()
    assert occupied.result(5)[0] == "20"


def test_delay_refuses_nothing_for_its_age_and_serves_the_late_after_those_in_time(models):
    asker = models["delay"]
    occupied = asker.occupy(0)
    late = asker.ask(1, 1000)
    wait_until(lambda: asker.metric("nv_inference_pending_request_count") == 1)
    in_time = asker.ask(2)
    wait_until(lambda: asker.metric("nv_inference_pending_request_count") == 2)
    asker.model.release()
    assert [each.result(5)[0] for each in (occupied, late, in_time)] == ["0", "1", "2"]
    assert asker.model.executions() == [[0], [2], [1]]
