"""ModelStreamInfer: the order of responses, errors in their place, empty final responses, cancellation, back-pressure."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from naiad.errors import invalid_argument, not_found, unavailable
from naiad.frontends.grpc.calls import stream_infer
from naiad.frontends.grpc.calls.infer import InferContext
from naiad.frontends.grpc.calls.stream_infer import StreamInferRpc
from naiad.frontends.header_forward import HeaderForwarder
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BY_NAME
from naiad.wire.proto.infer_request import ProtoTemplates
from naiad.wire.proto.infer_response import ProtoResponseTemplates


class ScriptedService:
    """Keeps sinks by request id; models whose names begin with "rep" are decoupled, "gone" is unknown, "bad" refuses."""

    def __init__(self) -> None:
        self.sinks: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.calls: list[Any] = []
        self.draining = False

    def is_decoupled(self, name: str, version: str) -> bool:
        if name == "gone":
            raise not_found("Request for unknown model: 'gone' is not found")
        return name.startswith("rep")

    def is_draining(self) -> bool:
        return self.draining

    def infer(self, call: Any, sink: Any) -> Any:
        if call.model_name == "bad":
            raise invalid_argument("bad shape")
        self.sinks[call.id] = sink
        self.calls.append(call)
        service = self

        class Handle:
            def cancel(self) -> None:
                service.cancelled.append(call.id)

        return Handle()


class Transport:
    def __init__(self, **metadata: bytes) -> None:
        self.metadata = tuple((name.encode(), value) for name, value in metadata.items())
        self.deadline_ns: int | None = None
        self.sent: list[Any] = []
        self.end: Any = ()
        self.is_held = False
        self.is_writable = True
        self.waiting: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(service_pb2.ModelStreamInferResponse.FromString(b"".join(map(bytes, message))))

    def finish(self, error: Any = None) -> None:
        self.end = error

    def when_writable(self, callback: Any) -> bool:
        if not self.is_writable:
            self.waiting.append(callback)
        return self.is_writable

    def hold_requests(self, is_held: bool) -> None:
        self.is_held = is_held


class Stream:
    def __init__(self, **metadata: bytes) -> None:
        self.service = ScriptedService()
        self.transport = Transport(**metadata)
        context = InferContext(self.service, HeaderForwarder(""), False, ProtoTemplates(), ProtoResponseTemplates())  # type: ignore[arg-type]
        self.rpc = StreamInferRpc(context, self.transport)  # type: ignore[arg-type]

    def ask(self, model: str, request_id: str, **parameters: bool) -> None:
        request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        for name, value in parameters.items():
            request.parameters[name].bool_param = value
        self.rpc.on_message(request.SerializeToString())

    def answer(self, request_id: str, is_final: bool = True, value: int = 7) -> None:
        output = OutputTensor("Y", BY_NAME["INT32"], np.array([value], np.int32))
        self.service.sinks[request_id].send(InferResponse("m", "1", request_id, [output]), is_final)

    @property
    def ids(self) -> list[str]:
        return [message.infer_response.id for message in self.transport.sent]


def final_of(message: Any) -> bool:
    return bool(message.infer_response.parameters["triton_final_response"].bool_param)


def test_ordinary_responses_keep_the_order_of_requests() -> None:
    stream = Stream()
    names = [f"r{index}" for index in range(50)]
    for name in names:
        stream.ask("slow", name)
    shuffled = list(names)
    random.Random(3).shuffle(shuffled)
    for name in shuffled:
        stream.answer(name)
    assert names == stream.ids
    assert all(final_of(message) for message in stream.transport.sent)


def test_decoupled_responses_dont_wait_for_ordinary_ones() -> None:
    stream = Stream()
    stream.ask("slow", "late")
    stream.ask("rep", "d1")
    stream.ask("rep", "d2")
    stream.answer("d1", is_final=False)
    stream.answer("d2", is_final=False)
    stream.answer("d1", is_final=True)
    assert stream.ids == ["d1", "d2", "d1"]
    assert list(map(final_of, stream.transport.sent)) == [False, False, True]
    stream.answer("late")
    assert stream.ids[-1] == "late"


def test_errors_take_their_place_in_the_order() -> None:
    stream = Stream()
    stream.ask("slow", "first")
    stream.ask("bad", "second")
    stream.ask("gone", "third")
    stream.ask("slow", "fourth")
    stream.answer("fourth")
    assert stream.ids == []
    stream.answer("first")
    assert stream.ids == ["first", "second", "third", "fourth"]
    assert [message.error_message for message in stream.transport.sent] == [
        "",
        "bad shape",
        "Request for unknown model: 'gone' is not found",
        "",
    ]


def test_a_failed_request_says_of_which_model_and_that_it_is_over() -> None:
    stream = Stream()
    stream.ask("slow", "a")
    stream.service.sinks["a"].fail(unavailable("worker died"))
    (message,) = stream.transport.sent
    assert (message.error_message, message.infer_response.id, message.infer_response.model_name) == ("worker died", "a", "slow")
    assert final_of(message)
    assert stream.transport.end == ()


def test_an_error_ends_the_stream_where_the_client_wants_that() -> None:
    stream = Stream(triton_grpc_error=b"true")
    stream.ask("slow", "a")
    stream.ask("rep", "b")
    stream.ask("bad", "c")
    error = unavailable("worker died")
    stream.service.sinks["a"].fail(error)
    assert stream.transport.end is error
    assert {"a", "b"} == set(stream.service.cancelled)


def test_the_final_flag_alone_is_sent_where_it_was_asked_for() -> None:
    stream = Stream()
    stream.ask("rep", "plain")
    stream.ask("rep", "asks", triton_enable_empty_final_response=True)
    for name in ("plain", "asks"):
        stream.service.sinks[name].send(None, True)
    (message,) = stream.transport.sent
    assert (
        message.infer_response.id,
        message.infer_response.model_name,
        len(message.infer_response.outputs),
    ) == ("asks", "rep", 0)
    assert final_of(message)


def test_the_stream_ends_well_after_the_last_response() -> None:
    stream = Stream()
    stream.ask("slow", "a")
    stream.ask("rep", "b")
    stream.rpc.on_half_close()
    assert stream.transport.end == ()
    stream.answer("a")
    assert stream.transport.end == ()
    stream.service.sinks["b"].send(None, True)
    assert stream.transport.end is None


def test_an_empty_stream_ends_well() -> None:
    stream = Stream()
    stream.rpc.on_half_close()
    assert stream.transport.end is None


def test_a_cancelled_stream_cancels_every_open_request() -> None:
    stream = Stream()
    for name in ("a", "b", "c"):
        stream.ask("slow", name)
    stream.answer("a")
    stream.rpc.on_cancel(None)
    assert stream.service.cancelled == ["b", "c"]
    stream.answer("b")
    assert stream.ids == ["a"]


def test_a_client_that_doesnt_read_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    stream.transport.is_writable = False
    stream.ask("slow", "a")
    assert stream.transport.is_held
    stream.transport.is_writable = True
    for callback in stream.transport.waiting:
        callback()
    assert not stream.transport.is_held


def test_too_many_open_requests_hold_the_client_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_infer, "MAX_OPEN_REQUESTS", 10)
    stream = Stream()
    for index in range(10):
        stream.ask("rep", str(index))
    assert stream.transport.is_held
    for index in range(5):
        stream.answer(str(index))
    assert stream.transport.is_held
    stream.answer("5")
    assert not stream.transport.is_held


def test_garbage_ends_the_stream_or_is_answered_but_never_raises() -> None:
    stream = Stream()
    stream.rpc.on_message(b"\xff\xff\xff")
    assert stream.transport.sent[0].error_message


def test_a_request_that_comes_after_the_end_is_told_so_and_the_stream_goes_on() -> None:
    stream = Stream()
    stream.ask("slow", "before")
    stream.service.draining = True
    stream.ask("bad", "late")
    stream.answer("before")
    assert [message.error_message for message in stream.transport.sent] == [
        "",
        "GRPC server is shutting down and has stopped accepting new requests.",
    ]
    assert stream.transport.end == ()


def test_a_response_that_cant_be_written_is_a_fault_of_one_request(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    stream.ask("slow", "a")
    stream.ask("slow", "b")
    stream.service.sinks["a"].send(InferResponse("\ud800", "1", "a", []), True)
    stream.answer("b")
    assert [message.error_message for message in stream.transport.sent] == ["internal error, see the server's log", ""]
    assert stream.service.cancelled == ["a"]
    assert "UnicodeEncodeError" in caplog.text


def test_a_client_that_doesnt_read_is_asked_about_once() -> None:
    stream = Stream()
    for index in range(5):
        stream.ask("slow", str(index))
    stream.transport.is_writable = False
    for index in range(5):
        stream.answer(str(index))
    assert len(stream.transport.waiting) == 1
