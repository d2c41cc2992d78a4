"""The tensors of frames: requests out of an EXECUTE, responses into a block.

Owns the two layouts on the worker's side. Knows shared memory, not the socket.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor
from naiad.worker.faults import cut
from naiad.worker.frames import MAX_TAIL_BYTES
from naiad.worker.messages import RequestMessage, ResponseMessage, TensorMessage

_ALIGNMENT = 64
_MAX_LAYOUTS = 256
_MAX_LAYOUT_BYTES = 1 << 14
_MAX_ERROR_CHARS = 1 << 16
_PLAIN = {"outputs"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

Array = np.ndarray[Any, Any]


class LayoutReader:
    """Reads EXECUTE tails; those that come again, as most do, are known by their bytes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, list[RequestMessage]] = {}

    def read(self, tail: bytes) -> list[RequestMessage]:
        """Return the requests of a batch as messages, to be read only."""
        known = self._known.get(tail)
        if known is not None:
            return known
        messages: list[RequestMessage] = json.loads(tail)
        if len(tail) <= _MAX_LAYOUT_BYTES:  # Parameters of a megabyte don't come again.
            if len(self._known) >= _MAX_LAYOUTS:
                self._known.clear()
            self._known[tail] = messages
        return messages


class ResultTails:
    """Writes RESULT tails; those of plain responses that come again, as most do, are known by what they say."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, bytes] = {}

    def write(self, responses: Sequence[ResponseMessage]) -> bytes:
        """Return the tail of a RESULT."""
        if len(responses) != 1 or responses[0].keys() != _PLAIN:
            return as_json(responses)
        key = tuple(responses[0]["outputs"])
        tail = self._known.get(key)
        if tail is None:
            tail = as_json(responses)
            if len(self._known) >= _MAX_LAYOUTS:
                self._known.clear()
            self._known[key] = tail
        return tail


def as_json(message: Any) -> bytes:
    """Return a tail. Half a surrogate pair, which isn't a character, becomes "?".

    Raises ValueError for NaN, infinities and what is too long, TypeError for what JSON can't hold.
    """
    tail = _ENCODER.encode(message).encode("utf-8", "replace")
    if len(tail) > MAX_TAIL_BYTES:
        raise ValueError(f"{len(tail)} bytes beside tensors are too many, at most {MAX_TAIL_BYTES} are possible")
    return tail


def received_requests(first_id: int, messages: Sequence[RequestMessage], data: Array) -> list[InferenceRequest]:
    """Return the requests of a batch; `data` is the flat uint8 array of the input block, which the tensors are views of."""
    return [
        InferenceRequest._received(first_id + index, message, received_tensors(message["inputs"], data))
        for index, message in enumerate(messages)
    ]


def received_tensors(messages: Sequence[TensorMessage], data: Array) -> list[Tensor]:
    """Return tensors as views of `data`."""
    return [
        Tensor.received(name, datatype, shape, data[offset : offset + size]) for name, datatype, shape, offset, size in messages
    ]


class BlockWriter:
    """Lays tensors one after the other into one block: first `add` all, then copy into the block that was allocated."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[tuple[int, bytes | memoryview]] = []
        self.size = 0

    def add(self, tensor: Tensor) -> TensorMessage:
        """Return where `tensor` will lie. Raises TritonModelException when it can't be sent."""
        datatype, shape, data = tensor.wire()
        if not isinstance(data, bytes):
            data = data.cast("B")
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        size = len(data)
        self._parts.append((offset, data))
        self.size = offset + size
        return (tensor.name(), datatype, shape, offset, size)

    def mark(self) -> tuple[int, int]:
        """Return a point to go back to."""
        return len(self._parts), self.size

    def back_to(self, mark: tuple[int, int]) -> None:
        """Forget what was added since `mark`."""
        count, self.size = mark
        del self._parts[count:]

    def copy_to(self, view: memoryview) -> None:
        """Copy all tensors into `view`, the block."""
        for offset, data in self._parts:
            view[offset : offset + len(data)] = data


class ResponseWriter:
    """Turns a model's responses into messages and checks them against the model's outputs.

    `warn` is told of outputs that the model sends beside those it declares.
    """

    def __init__(self, model_name: str, declared: Sequence[str], warn: Callable[[str], None]) -> None:
        self._model_name = model_name
        self._declared = frozenset(declared)
        self._declared_text = ", ".join(declared)
        self._warn = warn
        self._warned: set[str] = set()

    def message(self, response: InferenceResponse, wanted: Sequence[str], writer: BlockWriter) -> ResponseMessage:
        """Return the message of `response`, with the tensors in `wanted` added to `writer`; an error message when it has one or
        can't be sent.
        """
        error = response.error()
        if error is not None:
            return {"error": error_pair(error)}
        mark = writer.mark()
        try:
            message: ResponseMessage = {"outputs": self._outputs(response.output_tensors(), wanted, writer)}
        except TritonModelException as exception:
            writer.back_to(mark)
            return {"error": ("INTERNAL", f"model '{self._model_name}' returned a wrong output: {exception}")}
        parameters = response.parameters_dict()
        if parameters:
            message["parameters"] = parameters
        return message

    def _outputs(self, tensors: Sequence[Tensor], wanted: Sequence[str], writer: BlockWriter) -> list[TensorMessage]:
        by_name = {tensor.name(): tensor for tensor in tensors}
        if not by_name.keys() <= self._declared:
            self._look_at_unknown(by_name, wanted)
        return [writer.add(by_name[name]) for name in wanted if name in by_name]

    def _look_at_unknown(self, by_name: dict[str, Tensor], wanted: Sequence[str]) -> None:
        """A name that isn't declared is a slip when an output is missing, and otherwise said once in the log."""
        unknown = [name for name in by_name if name not in self._declared]
        missing = [name for name in wanted if name not in by_name]
        for name in unknown:
            text = f"'{name}' is no output of the model, which declares: {self._declared_text}"
            if missing:
                near = difflib.get_close_matches(name.lower(), [item.lower() for item in missing], 1, 0.5)
                hint = next((f"; did you mean '{item}'?" for item in missing if item.lower() in near), "")
                raise TritonModelException(text + hint)
            if name not in self._warned:
                self._warned.add(name)
                self._warn(f"a response holds a tensor that is left out: {text}")


def error_pair(error: Any) -> tuple[str, str]:
    """Return code name and text of a TritonError as messages hold them."""
    return (error.code_name(), cut(error.message(), _MAX_ERROR_CHARS))
