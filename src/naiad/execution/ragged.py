"""Batches whose requests have inputs of different shapes, for engines that take one tensor for all of them.

Owns how such inputs are laid into one row, the tensors that tell the model where each request lies (`batch_input`), and how an
output of the same form is cut again (`batch_output`). Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from naiad.config.plan import BatchInputKind, BatchInputPlan, ModelPlan, TensorPlan
from naiad.errors import internal
from naiad.execution.tensors import BatchTensors
from naiad.request.request import InferRequest
from naiad.request.response import OutputTensor

Array = np.ndarray[Any, Any]


class RaggedTensors(BatchTensors):
    """See `BatchTensors`, of which it makes use for everything that isn't ragged."""

    __slots__ = ("_batch_inputs", "_ragged", "_scattered")

    def __init__(self, plan: ModelPlan, *, may_omit_outputs: bool = False) -> None:
        super().__init__(plan, may_omit_outputs=may_omit_outputs)
        self._batch_inputs = plan.batch_inputs
        self._ragged = frozenset(tensor.name for tensor in plan.inputs if tensor.allow_ragged_batch)
        self._scattered = plan.scattered_outputs

    def gather(self, requests: Sequence[InferRequest]) -> Mapping[str, Array]:
        """Return the backend's inputs: of ragged ones all elements in one row, request after request."""
        gathered: dict[str, Array] = {}
        for name in requests[0].inputs:
            arrays = [request.inputs[name] for request in requests]
            gathered[name] = _in_a_row(arrays) if name in self._ragged else np.concatenate(arrays)
        self._to_backend_shapes(gathered)
        for made in self._batch_inputs:
            if made.source in gathered:
                gathered[made.tensor.name] = batch_input(made, [request.inputs[made.source] for request in requests])
        return gathered

    def split(self, arrays: object, requests: Sequence[InferRequest]) -> list[list[OutputTensor]]:
        """Return each request's outputs. A scattered one has the shape of the request's source input; INTERNAL when the model
        returned another number of elements or another dtype.
        """
        if not self._scattered or not isinstance(arrays, Mapping):
            return super().split(arrays, requests)
        pieces = {
            name: self._scatter(self._outputs[name], arrays[name], [request.inputs[source].shape for request in requests])
            for name, source in self._scattered.items()
            if name in arrays and all(source in request.inputs for request in requests)
        }
        rest = {name: array for name, array in arrays.items() if name not in pieces}
        shown = [tuple(name for name in request.outputs if name not in pieces) for request in requests]
        answers = self._split_rows(rest, requests, shown)
        for index, request in enumerate(requests):
            by_name = {output.name: output for output in answers[index]}
            for name in request.outputs:
                if name in pieces:
                    by_name[name] = OutputTensor(name, self._outputs[name].datatype, pieces[name][index])
            answers[index] = [by_name[name] for name in request.outputs if name in by_name]
        return answers

    def _scatter(self, plan: TensorPlan, array: object, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        counts = [int(np.prod(shape)) for shape in shapes]
        if not isinstance(array, np.ndarray) or array.dtype != plan.datatype.numpy or array.size != sum(counts):
            found = f"{array.size} elements of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
            raise internal(
                f"model '{self._model}' returned a wrong output: '{plan.name}' has {found}, must have {sum(counts)} of "
                f"{plan.datatype.numpy}, as many as input '{self._scattered[plan.name]}'"
            )
        ends = np.cumsum(counts)
        flat = array.reshape(-1)
        return [flat[end - count : end].reshape(shape) for count, end, shape in zip(counts, ends.tolist(), shapes)]


def batch_input(made: BatchInputPlan, sources: Sequence[Array]) -> Array:
    """Return the tensor that tells the model how the `sources`, an array of each request, lie in the batch."""
    kind, dtype = made.kind, made.tensor.datatype.numpy
    counts = np.array([source.size for source in sources])
    if kind is BatchInputKind.ELEMENT_COUNT:
        return counts.astype(dtype)
    if kind is BatchInputKind.ACCUMULATED_ELEMENT_COUNT:
        return counts.cumsum().astype(dtype)
    if kind is BatchInputKind.ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
        return np.concatenate([[0], counts.cumsum()]).astype(dtype)
    if kind is BatchInputKind.MAX_ELEMENT_COUNT_AS_SHAPE:
        return np.zeros(counts.max(), dtype)
    rows = np.array([source.shape[1:] for source in sources for _ in range(source.shape[0])], dtype)
    return rows if kind is BatchInputKind.ITEM_SHAPE else rows.reshape(-1)


def _in_a_row(arrays: Sequence[Array]) -> Array:
    return np.concatenate([array.reshape(-1) for array in arrays])
