"""What a model's outputs must be, by its plan.

Owns the rules and their texts, for arrays and for outputs that are only described yet. Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.errors import InferenceServerError, internal
from naiad.tensor import shape as shapes

Array = np.ndarray[Any, Any]

_BYTES_ONLY = frozenset({bytes})


class OutputChecker:
    """Checks the outputs of one model version. Every fault is INTERNAL and names model and output."""

    __slots__ = ("_is_batching", "_model", "_outputs")

    def __init__(self, plan: ModelPlan) -> None:
        self._model = plan.name
        self._outputs = plan.outputs_by_name
        self._is_batching = plan.is_batching

    def missing(self, name: str) -> InferenceServerError:
        """Return the error for a wanted output that a response doesn't have."""
        return internal(f"model '{self._model}' returned no output '{name}', which the request wants")

    def check(self, name: str, datatype: str, shape: Sequence[int], rows: int) -> TensorPlan:
        """Return the output's plan; `rows` is the request's batch size. Raises for a datatype or shape that doesn't fit."""
        plan = self._outputs[name]
        if datatype != plan.datatype.name:
            raise self._wrong_datatype(plan, _given(datatype))
        if not self._fits(plan, shape, rows):
            raise self._wrong_shape(plan, shape, rows)
        return plan

    def check_array(self, plan: TensorPlan, array: object, rows: int) -> Array:
        """Return `array`, the output of a batch of `rows` items, in the shape that clients see. Raises for what isn't an array
        of the output's dtype, rank and batch size, and for elements of a BYTES output that aren't bytes.
        """
        if not isinstance(array, np.ndarray):
            raise self._fault(plan, f"is a {type(array).__name__}, must be a numpy array")
        if array.dtype != plan.datatype.numpy:
            raise self._wrong_datatype(plan, str(array.dtype))
        shape = array.shape
        if not self._fits(plan, shape, rows):
            raise self._wrong_shape(plan, shape, rows)
        if array.dtype.hasobject and not _BYTES_ONLY.issuperset(map(type, array.ravel().tolist())):
            raise self._wrong_element(plan, array)
        return self.to_client_shape(plan, array) if plan.has_reshape else array

    def to_client_shape(self, plan: TensorPlan, array: Array) -> Array:
        """Return an output in the shape that clients see."""
        return reshape(array, plan.backend_shape[self._is_batching :], plan.shape) if plan.has_reshape else array

    def _fits(self, plan: TensorPlan, shape: Sequence[int], rows: int) -> bool:
        """Return whether an output has the right rank and batch size, and every fixed size if it is to be reshaped."""
        if len(shape) != len(plan.backend_shape) or (self._is_batching and shape[0] != rows):
            return False
        return not plan.has_reshape or shapes.matches(shape, plan.backend_shape)

    def _wrong_shape(self, plan: TensorPlan, shape: Sequence[int], rows: int) -> InferenceServerError:
        expected = (rows, *plan.backend_shape[1:]) if self._is_batching else plan.backend_shape
        return self._fault(plan, f"has shape {shapes.text(shape)}, must be {shapes.text(expected)}")

    def _wrong_element(self, plan: TensorPlan, array: Array) -> InferenceServerError:
        position, element = next((index, item) for index, item in enumerate(array.flat) if type(item) is not bytes)
        where = shapes.text([int(index) for index in np.unravel_index(position, array.shape)])
        return self._fault(plan, f"has a {type(element).__name__} at {where}, elements of a BYTES output must be bytes")

    def _wrong_datatype(self, plan: TensorPlan, given: str) -> InferenceServerError:
        return self._fault(plan, f"has the wrong datatype: {given} given, {plan.datatype.name} declared")

    def _fault(self, plan: TensorPlan, text: str) -> InferenceServerError:
        return internal(f"model '{self._model}' returned a wrong output: '{plan.name}' {text}")


def reshape(array: Array, item_dims: Sequence[int], target: Sequence[int]) -> Array:
    """Return `array` in the shape `target`: its variable sizes are the array's own, in their order."""
    has_batch = array.ndim > len(item_dims)
    variable = [size for size, dim in zip(array.shape[has_batch:], item_dims) if dim == shapes.VARIABLE]
    sizes = iter(([array.shape[0]] if has_batch else []) + variable)
    return array.reshape([next(sizes) if dim == shapes.VARIABLE else dim for dim in target])


_NUMPY_NAMES = {"FP64": "float64", "FP32": "float32", "FP16": "float16", "BOOL": "bool", "BF16": "bfloat16"}


def _given(datatype: str) -> str:
    """Return a datatype with what numpy calls it, which is what the model's author knows."""
    name = _NUMPY_NAMES.get(datatype, datatype.lower() if "INT" in datatype else "")
    return f"{name} ({datatype})" if name else datatype
