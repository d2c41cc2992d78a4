"""Server reflection: what services, messages and files there are, for tools that have no .proto files of ours.

Owns the RPC in its two versions, which differ in their package's name only. What is declared is the descriptor index's.
A question without an answer is an error message in its place, and the stream goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from google.protobuf.message import DecodeError

from naiad.errors import Code, InferenceServerError, invalid_argument
from naiad.frontends.grpc.call import CallTransport
from naiad.frontends.grpc.status import STATUS_OF_CODE
from naiad.proto import DescriptorIndex, Message, message_class
from naiad.request.call import Buffer

V1 = "grpc.reflection.v1"
V1ALPHA = "grpc.reflection.v1alpha"

_NOT_FOUND, _INVALID_ARGUMENT = STATUS_OF_CODE[Code.NOT_FOUND], STATUS_OF_CODE[Code.INVALID_ARGUMENT]
# Questions are names, and come back with their answers.
_LARGEST_QUESTION_BYTES = 4096
# Tools wait for an answer before they ask again; answers are a thousand times as large as questions.
_MAX_WAITING = 256


class ReflectionRpc:
    """One stream: an answer to each question, in their order, one in a turn of the loop, at the pace of the client."""

    __slots__ = ("_answers", "_call_soon", "_has_ended", "_is_answering", "_is_half_closed", "_transport", "_waiting")

    def __init__(self, answers: ReflectionAnswers, call_soon: Callable[..., object], transport: CallTransport) -> None:
        self._answers = answers
        self._call_soon = call_soon
        self._transport = transport
        self._waiting: deque[bytes] = deque()
        self._is_answering = False
        self._is_half_closed = False
        self._has_ended = False

    def on_message(self, message: Buffer) -> None:
        """See `Rpc.on_message`."""
        if len(message) > _LARGEST_QUESTION_BYTES:
            text = f"a question of reflection has {len(message)} bytes, at most {_LARGEST_QUESTION_BYTES} are allowed"
            raise invalid_argument(text)
        if len(self._waiting) >= _MAX_WAITING:
            raise InferenceServerError(Code.RESOURCE_EXHAUSTED, f"more than {_MAX_WAITING} questions wait for their answers")
        self._waiting.append(bytes(message))
        self._answer_soon()

    def on_half_close(self) -> None:
        """See `Rpc.on_half_close`: the stream ends well after the last answer."""
        self._is_half_closed = True
        self._answer_soon()

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """See `Rpc.on_cancel`."""
        self._has_ended = True
        self._waiting.clear()

    def _answer_soon(self) -> None:
        if not self._is_answering:
            self._is_answering = True
            self._call_soon(self._answer_next)

    def _answer_next(self) -> None:
        if self._has_ended:
            return
        if not self._waiting:
            self._is_answering = False
            if self._is_half_closed:
                self._transport.finish()
        elif self._transport.when_writable(self._answer_next):
            try:
                self._transport.send([self._answers.answer(self._waiting.popleft())])
            except InferenceServerError as error:
                self.on_cancel(error)
                self._transport.finish(error)
            else:
                self._call_soon(self._answer_next)


class ReflectionAnswers:
    """The answers in the messages of one version of the protocol, whose package is `package`."""

    def __init__(self, index: DescriptorIndex, package: str) -> None:
        self._index = index
        self._package = package

    def answer(self, question: bytes) -> bytes:
        """Return the response to a serialized request, serialized. Raises INVALID_ARGUMENT for what is no request."""
        request_class = message_class(f"{self._package}.ServerReflectionRequest")
        try:
            request = request_class.FromString(question)
        except DecodeError as error:
            raise invalid_argument(f"the message is no {self._package}.ServerReflectionRequest: {error}") from error
        response = message_class(f"{self._package}.ServerReflectionResponse")(valid_host=request.host, original_request=request)
        self._fill(response, request)
        serialized: bytes = response.SerializeToString()
        return serialized

    def _fill(self, response: Message, request: Message) -> None:
        index, kind = self._index, request.WhichOneof("message_request")
        if kind == "list_services":
            for name in index.services:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            _put_files(response, index.file(request.file_by_filename), f"file '{request.file_by_filename}'")
        elif kind == "file_containing_symbol":
            symbol = request.file_containing_symbol
            _put_files(response, index.file_with_symbol(symbol), f"symbol '{symbol}'")
        elif kind == "file_containing_extension":
            wanted = request.file_containing_extension
            files = index.file_with_extension(wanted.containing_type, wanted.extension_number)
            _put_files(response, files, f"extension {wanted.extension_number} of '{wanted.containing_type}'")
        elif kind == "all_extension_numbers_of_type":
            message = request.all_extension_numbers_of_type
            _put_numbers(response, index.extension_numbers(message), message)
        else:
            _put_error(response, _INVALID_ARGUMENT, "the request asks for nothing: 'message_request' isn't set")


def _put_files(response: Message, files: list[bytes] | None, what: str) -> None:
    if files is None:
        _put_error(response, _NOT_FOUND, f"{what} is not found")
    else:
        response.file_descriptor_response.file_descriptor_proto.extend(files)


def _put_numbers(response: Message, numbers: list[int] | None, message: str) -> None:
    if numbers is None:
        _put_error(response, _NOT_FOUND, f"message '{message}' is not found")
    else:
        response.all_extension_numbers_response.base_type_name = message
        response.all_extension_numbers_response.extension_number.extend(numbers)


def _put_error(response: Message, code: int, text: str) -> None:
    response.error_response.error_code = code
    response.error_response.error_message = text
