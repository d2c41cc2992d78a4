"""What a worker's outputs must be, by the model's plan.

Owns the rules for outputs that aren't arrays yet, and their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.errors import InferenceServerError, internal
from naiad.execution.tensors import reshape
from naiad.tensor import shape as shapes

Array = np.ndarray[Any, Any]


class OutputChecker:
    """Checks the outputs of one model version."""

    __slots__ = ("_is_batching", "_model", "_outputs")

    def __init__(self, plan: ModelPlan) -> None:
        self._model = plan.name
        self._outputs = plan.outputs_by_name
        self._is_batching = plan.is_batching

    def missing(self, name: str) -> InferenceServerError:
        """Return the error for a wanted output that a response doesn't have."""
        return internal(f"model '{self._model}' returned no output '{name}', which the request wants")

    def check(self, name: str, datatype: str, shape: Sequence[int], rows: int) -> TensorPlan:
        """Return the output's plan; `rows` is the request's batch size. Raises INTERNAL when datatype or shape don't fit."""
        plan = self._outputs[name]
        if datatype != plan.datatype.name:
            raise self._fault(plan, f"has the wrong datatype: {_given(datatype)} given, {plan.datatype.name} declared")
        expected = (rows, *plan.backend_shape[1:]) if self._is_batching else plan.backend_shape
        if len(shape) != len(expected) or (self._is_batching and shape[0] != rows):
            raise self._fault(plan, f"has shape {shapes.text(shape)}, must be {shapes.text(expected)}")
        return plan

    def to_client_shape(self, plan: TensorPlan, array: Array) -> Array:
        """Return an output in the shape that clients see."""
        return reshape(array, plan.backend_shape[self._is_batching :], plan.shape) if plan.has_reshape else array

    def _fault(self, plan: TensorPlan, text: str) -> InferenceServerError:
        return internal(f"model '{self._model}' returned a wrong output: '{plan.name}' {text}")


_NUMPY_NAMES = {"FP64": "float64", "FP32": "float32", "FP16": "float16", "BOOL": "bool", "BF16": "bfloat16"}


def _given(datatype: str) -> str:
    """Return a datatype with what numpy calls it, which is what the model's author knows."""
    name = _NUMPY_NAMES.get(datatype, datatype.lower() if "INT" in datatype else "")
    return f"{name} ({datatype})" if name else datatype
