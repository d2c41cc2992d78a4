"""Gather and split: the tensors of a batch's requests to the backend's arrays, and back.

Owns the one copy of a request's way in (none for a batch of one) and the views of its way out. Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.errors import InferenceServerError, internal
from naiad.request.request import InferRequest
from naiad.request.response import OutputTensor
from naiad.tensor import shape as shapes

Array = np.ndarray[Any, Any]


class BatchTensors:
    """Gathers and splits for one model version."""

    __slots__ = ("_is_batching", "_model", "_outputs", "_reshaped")

    def __init__(self, plan: ModelPlan) -> None:
        self._model = plan.name
        self._reshaped = tuple(item for item in plan.inputs if item.has_reshape)
        self._outputs = plan.outputs_by_name
        self._is_batching = plan.is_batching

    def gather(self, requests: Sequence[InferRequest]) -> Mapping[str, Array]:
        """Return the backend's inputs: the requests' arrays one after the other along the batch dimension.

        All requests have the same set of inputs and shapes that can be joined (the scheduler's rule).
        """
        first = requests[0].inputs
        if len(requests) == 1:
            # Tensors lie in the body at any offset; engines may load whole vectors.
            gathered = {name: array if array.flags.aligned else array.copy() for name, array in first.items()}
        else:
            gathered = {name: np.concatenate([request.inputs[name] for request in requests]) for name in first}
        for plan in self._reshaped:
            if plan.name in gathered:
                gathered[plan.name] = reshape(gathered[plan.name], plan.dims, plan.backend_shape)
        return gathered

    def split(self, arrays: object, requests: Sequence[InferRequest]) -> list[list[OutputTensor]]:
        """Return each request's outputs, as views of the batch's arrays where the model batches.

        Raises INTERNAL when `arrays`, what the model returned, is no mapping of names to arrays with the datatype, rank and
        batch size that they must have.
        """
        if type(arrays) is not dict and not isinstance(arrays, Mapping):
            found = type(arrays).__name__
            raise internal(
                f"model '{self._model}' returned a wrong result: a {found}, must be a mapping of output names to arrays"
            )
        if len(requests) == 1:
            return [self._whole(arrays, requests[0])]
        rows = sum(request.batch_size for request in requests)
        checked = {
            name: self._checked(self._outputs[name], array, rows) for name, array in arrays.items() if name in self._outputs
        }
        answers = []
        start = 0
        for request in requests:
            end = start + request.batch_size
            answers.append(
                [
                    OutputTensor(name, self._outputs[name].datatype, checked[name][start:end])
                    for name in request.outputs
                    if name in checked
                ]
            )
            start = end
        return answers

    def _whole(self, arrays: Mapping[str, Array], request: InferRequest) -> list[OutputTensor]:
        """Return the outputs of a batch of one request: the arrays themselves."""
        rows = request.batch_size if self._is_batching else -1
        answers = []
        for name in request.outputs:
            array = arrays.get(name)
            if array is not None:
                plan = self._outputs[name]
                answers.append(OutputTensor(name, plan.datatype, self._checked(plan, array, rows)))
        return answers

    def _checked(self, plan: TensorPlan, array: object, rows: int) -> Array:
        if not isinstance(array, np.ndarray):
            raise self._fault(plan, f"is a {type(array).__name__}, must be a numpy array")
        if array.dtype != plan.datatype.numpy:
            raise self._fault(plan, f"has dtype {array.dtype}, must be {plan.datatype}")
        if array.ndim != len(plan.backend_shape) or (rows >= 0 and array.shape[0] != rows):
            expected = (rows, *plan.backend_shape[1:]) if rows >= 0 else plan.backend_shape
            raise self._fault(plan, f"has shape {shapes.text(array.shape)}, must be {shapes.text(expected)}")
        return reshape(array, plan.backend_shape[rows >= 0 :], plan.shape) if plan.has_reshape else array

    def _fault(self, plan: TensorPlan, text: str) -> InferenceServerError:
        return internal(f"model '{self._model}' returned a wrong output: '{plan.name}' {text}")


def reshape(array: Array, item_dims: Sequence[int], target: Sequence[int]) -> Array:
    """Return `array` in the shape `target`: its variable sizes are the array's own, in their order."""
    has_batch = array.ndim > len(item_dims)
    variable = [size for size, dim in zip(array.shape[has_batch:], item_dims) if dim == shapes.VARIABLE]
    sizes = iter(([array.shape[0]] if has_batch else []) + variable)
    return array.reshape([next(sizes) if dim == shapes.VARIABLE else dim for dim in target])
