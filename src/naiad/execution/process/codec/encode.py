"""Requests to EXECUTE frames: their tensors into the worker's input arena, the one copy on the way in.

Owns that layout on the server's side. Knows arenas and messages, not sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.execution.output_checks import reshape
from naiad.request.request import InferRequest
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BYTES
from naiad.worker.messages import RequestMessage, TensorMessage

_ALIGNMENT = 64
_MAX_KNOWN = 256
# To copy so little twice takes less than to make an array over the block.
_SMALL_BYTES = 1 << 12
_SEQUENCE_START, _SEQUENCE_END = 1, 2

Array = np.ndarray[Any, Any]


class BlockLayout:
    """Where tensors lie in a block that is yet to be allocated: `add` them, then `copy_to` the block."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[tuple[int, Array | bytes]] = []
        self.size = 0

    def add(self, name: str, datatype: str, array: Array) -> TensorMessage:
        """Return where `array` will lie; an object array is laid down with length prefixes."""
        data: Array | bytes = bytes_tensor.encode(array.flat) if datatype == "BYTES" else array
        size = len(data) if isinstance(data, bytes) else data.nbytes
        return (name, datatype, list(array.shape), self.place(data, size), size)

    def place(self, data: Array | bytes, size: int) -> int:
        """Return the offset at which `data`, `size` bytes, will lie."""
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self._parts.append((offset, data))
        self.size = offset + size
        return offset

    def copy_to(self, view: memoryview) -> None:
        """Copy all tensors into `view`, the block; frees the GIL for large ones."""
        for offset, data in self._parts:
            if isinstance(data, bytes):
                view[offset : offset + len(data)] = data
            elif data.nbytes <= _SMALL_BYTES:
                view[offset : offset + data.nbytes] = data.tobytes()
            else:
                np.copyto(np.ndarray(data.shape, data.dtype, view, offset), data)


class BatchEncoder:
    """Encodes the batches of one model version. Tails of lone plain requests that come again are known by what they say."""

    __slots__ = ("_inputs", "_known", "_may_know")

    def __init__(self, plan: ModelPlan) -> None:
        self._inputs = plan.inputs_by_name
        self._known: dict[object, bytes] = {}
        # The size of strings isn't in their shape, and a reshape is made with the message.
        self._may_know = all(tensor.datatype is not BYTES and not tensor.has_reshape for tensor in plan.inputs)

    def encode(self, requests: Sequence[InferRequest], layout: BlockLayout) -> bytes:
        """Return the tail of an EXECUTE, its tensors added to `layout`."""
        if len(requests) == 1 and self._may_know and _is_plain(requests[0]):
            return self._encode_plain(requests[0], layout)
        return orjson.dumps([self._message(request, layout) for request in requests])

    def _encode_plain(self, request: InferRequest, layout: BlockLayout) -> bytes:
        inputs = request.inputs
        key = (request.outputs, *inputs, *[array.shape for array in inputs.values()])
        tail = self._known.get(key)
        if tail is not None:
            for array in inputs.values():
                layout.place(array, array.nbytes)
            return tail
        tail = orjson.dumps([self._message(request, layout)])
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[key] = tail
        return tail

    def _message(self, request: InferRequest, layout: BlockLayout) -> RequestMessage:
        message: RequestMessage = {
            "inputs": [self._add(self._inputs[name], array, layout) for name, array in request.inputs.items()],
            "outputs": list(request.outputs),
        }
        if request.id:
            message["id"] = request.id
        if request.parameters:
            message["parameters"] = dict(request.parameters)
        if request.timeout_us:
            message["timeout_us"] = request.timeout_us
        if request.priority:
            message["priority"] = request.priority
        sequence = request.sequence
        if sequence is not None:
            message["correlation_id"] = sequence.id
            message["flags"] = _SEQUENCE_START * sequence.is_start | _SEQUENCE_END * sequence.is_end
        return message

    def _add(self, plan: TensorPlan, array: Array, layout: BlockLayout) -> TensorMessage:
        if plan.has_reshape:
            array = reshape(array, plan.dims, plan.backend_shape)
        return layout.add(plan.name, plan.datatype.name, array)


def _is_plain(request: InferRequest) -> bool:
    """Return whether a request's message says nothing but its tensors."""
    return not (request.id or request.parameters or request.timeout_us or request.priority or request.sequence is not None)
