"""A request that can't be in time hears so at once, and when to try again, over each protocol."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import raw_http
from asking import Asked, Asker, grpc_request
from scripted_models import ENVIRONMENT, ScriptedModel
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from waiting import wait_until

BATCH_MS = 100
# So many wait ahead that a request would need seconds; it has milliseconds.
QUEUED = 30
LIMITED = """dynamic_batching { default_queue_policy {
    default_timeout_microseconds: 60000000 allow_timeout_override: true max_queue_size: 40
} }"""
OFF = 'parameters { key: "naiad_early_refusal" value { string_value: "off" } }'


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = [
        ScriptedModel(repository, "limited", LIMITED, 1),
        ScriptedModel(repository, "by_deadline", "dynamic_batching { }", 1),
        ScriptedModel(repository, "off", LIMITED + OFF, 1),
    ]
    server = serve_for_module(repository, environment=ENVIRONMENT)
    return {model.name: Asker(server, model) for model in made}


@pytest.fixture(scope="module")
def stub(models) -> Iterator[GRPCInferenceServiceStub]:
    with grpc.insecure_channel(models["limited"].server.grpc) as channel:
        yield GRPCInferenceServiceStub(channel)


class Crowd:
    """A model that is known to take 100 ms a request, and busy, with a queue of seconds; `leave` ends it."""

    def __init__(self, asker: Asker, stub: GRPCInferenceServiceStub) -> None:
        for value in range(5):
            stub.ModelInfer(grpc_request(asker.model.name, value, BATCH_MS), timeout=60)
        self._asker = asker
        self._occupied = asker.occupy(99)
        self._queued: list[Asked] = [asker.ask(value) for value in range(100, 100 + QUEUED)]
        wait_until(lambda: asker.pending() == QUEUED)

    def leave(self) -> None:
        self._asker.model.release()
        assert {asked.answer()[0] for asked in [self._occupied, *self._queued]} == {200}


def test_http_answers_503_and_when_to_try_again(models, stub, connect):
    asker = models["limited"]
    refused = asker.metric("naiad_requests_refused_total", reason="too_late")
    crowd = Crowd(asker, stub)
    body = raw_http.infer("limited", [1], [1, 1], parameters={"timeout": 10_000})
    status, headers, content = connect(asker.server).send(body).response()
    assert status == 503
    assert int(headers["retry-after"]) >= 2
    assert b"the model is overloaded: by the speed of its last batches it takes about" in content
    assert b"the request's deadline is in 10 ms; retry in" in content
    assert asker.pending() == QUEUED
    assert asker.metric("naiad_requests_refused_total", reason="too_late") == refused + 1
    assert asker.metric("nv_inference_request_failure", reason="REJECTED") == 0
    crowd.leave()
    assert not asker.model.ran(1000)


def test_grpc_answers_unavailable_and_when_to_try_again(models, stub):
    asker = models["limited"]
    crowd = Crowd(asker, stub)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(grpc_request("limited", 1, timeout=10_000), timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "the model is overloaded" in caught.value.details()
    assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 2000
    crowd.leave()


def test_the_deadline_of_a_grpc_call_counts_without_any_configuration(models, stub):
    asker = models["by_deadline"]
    crowd = Crowd(asker, stub)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(grpc_request("by_deadline", 1), timeout=1)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "until it is answered" in caught.value.details()
    answers = list(stub.ModelStreamInfer(iter([grpc_request("by_deadline", 1)]), timeout=1))
    assert ["the model is overloaded" in answer.error_message for answer in answers] == [True]
    in_time = stub.ModelInfer.future(grpc_request("by_deadline", 1000), timeout=60)
    wait_until(lambda: asker.pending() == QUEUED + 1)
    crowd.leave()
    assert in_time.result().model_name == "by_deadline"


def test_a_full_queue_says_when_to_try_again(models, stub, connect):
    asker = models["limited"]
    crowd = Crowd(asker, stub)
    more = asker.queue(*range(200, 210))
    status, headers, content = connect(asker.server).send(raw_http.infer("limited", [1], [1, 1])).response()
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"Exceeds maximum queue size" in content
    crowd.leave()
    assert {asked.answer()[0] for asked in more} == {200}


def test_a_model_that_opts_out_lets_every_request_wait_until_its_time_is_up(models, stub, connect):
    asker = models["off"]
    crowd = Crowd(asker, stub)
    late = connect(asker.server).send(raw_http.infer("off", [1], [1, 1], parameters={"timeout": 10_000}))
    status, headers, content = late.response()
    assert status == 503
    assert b"Request timeout expired" in content
    assert "retry-after" not in headers
    assert asker.metric("naiad_requests_refused_total", reason="too_late") == 0
    crowd.leave()
