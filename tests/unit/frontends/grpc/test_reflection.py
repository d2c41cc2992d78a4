"""Server reflection: each question has its answer in its place, what can't be answered is a message, and nothing piles up."""

from __future__ import annotations

from typing import Any

import pytest
from fake_call import FakeCall
from fake_loop import FakeLoop
from google.protobuf import descriptor_pb2

from naiad.errors import Code, InferenceServerError
from naiad.frontends.grpc.rpc.reflection import V1, V1ALPHA, ReflectionAnswers, ReflectionRpc
from naiad.proto import DescriptorIndex, descriptor_set, message_class

NOT_FOUND, INVALID_ARGUMENT = 5, 3


class Stream:
    """One stream of reflection. `answers` are its responses so far."""

    def __init__(self, package: str = V1) -> None:
        self.package = package
        self.loop = FakeLoop()
        self.call = FakeCall()
        answers = ReflectionAnswers(DescriptorIndex(descriptor_set()), package)
        self.rpc = ReflectionRpc(answers, self.loop.call_soon, self.call)

    def put(self, **question: Any) -> None:
        request = message_class(f"{self.package}.ServerReflectionRequest")(**question)
        self.rpc.on_message(request.SerializeToString())

    def ask(self, **question: Any) -> Any:
        self.put(**question)
        self.loop.turn()
        return self.answers[-1]

    @property
    def answers(self) -> list[Any]:
        response = message_class(f"{self.package}.ServerReflectionResponse")
        return [response.FromString(message) for message in self.call.sent]


@pytest.fixture(params=[V1, V1ALPHA])
def stream(request) -> Stream:
    return Stream(request.param)


def file_names(answer: Any) -> list[str]:
    files = answer.file_descriptor_response.file_descriptor_proto
    return [descriptor_pb2.FileDescriptorProto.FromString(file).name for file in files]


def test_the_services_are_listed_and_the_question_comes_back(stream) -> None:
    answer = stream.ask(host="here", list_services="*")
    names = [service.name for service in answer.list_services_response.service]
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health", f"{stream.package}.ServerReflection"} <= set(names)
    assert (answer.valid_host, answer.original_request.host, answer.original_request.list_services) == ("here", "here", "*")


def test_files_come_by_name_and_by_symbol_with_what_they_import(stream) -> None:
    for question in ({"file_by_filename": "inference.proto"}, {"file_containing_symbol": "inference.ModelInferRequest"}):
        assert file_names(stream.ask(**question)) == ["inference.proto", "model_config.proto"]


def test_a_message_that_nobody_extends_has_no_numbers(stream) -> None:
    answer = stream.ask(all_extension_numbers_of_type="inference.ModelConfig").all_extension_numbers_response
    assert (answer.base_type_name, list(answer.extension_number)) == ("inference.ModelConfig", [])


@pytest.mark.parametrize(
    ("question", "code", "text"),
    [
        ({"file_by_filename": "a.proto"}, NOT_FOUND, "file 'a.proto' is not found"),
        ({"file_containing_symbol": "a.B"}, NOT_FOUND, "symbol 'a.B' is not found"),
        ({"all_extension_numbers_of_type": "a.B"}, NOT_FOUND, "message 'a.B' is not found"),
        (
            {"file_containing_extension": {"containing_type": "a.B", "extension_number": 7}},
            NOT_FOUND,
            "extension 7 of 'a.B' is not found",
        ),
        ({"host": "here"}, INVALID_ARGUMENT, "the request asks for nothing: 'message_request' isn't set"),
    ],
)
def test_what_isnt_there_is_an_error_message_and_the_stream_goes_on(stream, question, code, text) -> None:
    error = stream.ask(**question).error_response
    assert (error.error_code, error.error_message) == (code, text)
    assert stream.call.end == "open"
    assert file_names(stream.ask(file_by_filename="health.proto")) == ["health.proto"]


def test_answers_come_in_order_one_a_turn_and_the_stream_ends_well_after_the_last(stream) -> None:
    wanted = ["health.proto", "model_config.proto", "reflection.proto"]
    for name in wanted:
        stream.put(file_by_filename=name)
    stream.rpc.on_half_close()
    for count in range(1, 4):
        stream.loop.turn_once()
        assert (len(stream.answers), stream.call.end) == (count, "open")
    stream.loop.turn()
    assert [answer.original_request.file_by_filename for answer in stream.answers] == wanted
    assert stream.call.end is None


def test_a_stream_without_questions_ends_well(stream) -> None:
    stream.rpc.on_half_close()
    stream.loop.turn()
    assert (stream.answers, stream.call.end) == ([], None)


def test_a_client_that_doesnt_read_is_answered_when_it_does(stream) -> None:
    stream.call.is_reading = False
    for _ in range(3):
        stream.put(list_services="")
    stream.rpc.on_half_close()
    stream.loop.turn()
    assert (stream.answers, len(stream.call.waiting)) == ([], 1)
    stream.call.read_again()
    stream.loop.turn()
    assert (len(stream.answers), stream.call.end) == (3, None)


def test_too_many_questions_at_once_end_the_stream(stream) -> None:
    stream.call.is_reading = False
    for _ in range(256):
        stream.put(list_services="")
    with pytest.raises(InferenceServerError, match="more than 256 questions wait") as raised:
        stream.put(list_services="")
    assert raised.value.code is Code.RESOURCE_EXHAUSTED


def test_a_question_that_is_too_long_ends_the_stream(stream) -> None:
    with pytest.raises(InferenceServerError, match="at most 4096 are allowed") as raised:
        stream.put(file_by_filename="x" * 4096)
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_garbage_ends_the_stream_after_what_was_asked_before(stream) -> None:
    stream.put(list_services="")
    stream.rpc.on_message(b"\x3a\xff")
    stream.put(list_services="")
    stream.loop.turn()
    assert len(stream.answers) == 1
    assert (stream.call.end.code, "ServerReflectionRequest" in stream.call.end.message) == (Code.INVALID_ARGUMENT, True)


def test_nothing_is_answered_after_the_client_is_gone(stream) -> None:
    stream.put(list_services="")
    stream.rpc.on_cancel(None)
    stream.loop.turn()
    assert (stream.answers, stream.loop.waiting_count) == ([], 0)
