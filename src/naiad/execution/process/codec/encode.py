"""Requests to EXECUTE frames: their tensors into the worker's input arena, the one copy on the way in.

Owns that layout on the server's side. Knows arenas and messages, not sockets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.execution.output_checks import reshape
from naiad.request.request import InferRequest
from naiad.tensor import bytes_tensor
from naiad.worker.messages import RequestMessage, TensorMessage

_ALIGNMENT = 64
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
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self._parts.append((offset, data))
        self.size = offset + size
        return (name, datatype, list(array.shape), offset, size)

    def copy_to(self, view: memoryview) -> None:
        """Copy all tensors into `view`, the block; frees the GIL for large ones."""
        for offset, data in self._parts:
            if isinstance(data, bytes):
                view[offset : offset + len(data)] = data
            else:
                np.copyto(np.ndarray(data.shape, data.dtype, view, offset), data)


class BatchEncoder:
    """Encodes the batches of one model version."""

    __slots__ = ("_inputs",)

    def __init__(self, plan: ModelPlan) -> None:
        self._inputs = plan.inputs_by_name

    def encode(self, requests: Sequence[InferRequest], layout: BlockLayout) -> bytes:
        """Return the tail of an EXECUTE, its tensors added to `layout`."""
        return orjson.dumps([self._message(request, layout) for request in requests])

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


def outputs_layout(outputs: Mapping[str, tuple[str, Array]], layout: BlockLayout) -> list[TensorMessage]:
    """Return where the outputs of a response to a nested call will lie: name to datatype name and array."""
    return [layout.add(name, datatype, array) for name, (datatype, array) in outputs.items()]
