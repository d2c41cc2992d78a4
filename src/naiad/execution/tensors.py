"""Gather and split: the tensors of a batch's requests to the backend's arrays, and back.

Owns the one copy of a request's way in (none for a batch of one) and the views of its way out. Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from naiad.config.plan import ModelPlan
from naiad.errors import internal
from naiad.execution.output_checks import OutputChecker, reshape
from naiad.request.request import InferRequest
from naiad.request.response import OutputTensor

Array = np.ndarray[Any, Any]


class BatchTensors:
    """Gathers and splits for one model version. `may_omit_outputs`: a wanted output that the model doesn't return is just not
    in the response, in place of an error.
    """

    __slots__ = ("_checker", "_may_omit_outputs", "_model", "_outputs", "_reshaped")

    def __init__(self, plan: ModelPlan, *, may_omit_outputs: bool = False) -> None:
        self._model = plan.name
        self._reshaped = tuple(item for item in plan.inputs if item.has_reshape)
        self._outputs = plan.outputs_by_name
        self._checker = OutputChecker(plan)
        self._may_omit_outputs = may_omit_outputs

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
        self._to_backend_shapes(gathered)
        return gathered

    def split(self, arrays: object, requests: Sequence[InferRequest]) -> list[list[OutputTensor]]:
        """Return each request's outputs, as views of the batch's arrays where the model batches.

        Raises INTERNAL when `arrays`, what the model returned, is no mapping of names to arrays, when one of them isn't what it
        must be, and when a wanted one isn't there.
        """
        if type(arrays) is not dict and not isinstance(arrays, Mapping):
            found = type(arrays).__name__
            raise internal(
                f"model '{self._model}' returned a wrong result: a {found}, must be a mapping of output names to arrays"
            )
        if len(requests) == 1:
            return [self._whole(arrays, requests[0], requests[0].outputs)]
        return self._split_rows(arrays, requests, [request.outputs for request in requests])

    def _to_backend_shapes(self, gathered: dict[str, Array]) -> None:
        for plan in self._reshaped:
            if plan.name in gathered:
                gathered[plan.name] = reshape(gathered[plan.name], plan.dims, plan.backend_shape)

    def _split_rows(
        self, arrays: Mapping[str, Array], requests: Sequence[InferRequest], wanted: Sequence[Sequence[str]]
    ) -> list[list[OutputTensor]]:
        """Return of each request's rows the outputs that `wanted` names for it."""
        if len(requests) == 1:
            return [self._whole(arrays, requests[0], wanted[0])]
        rows = sum(request.batch_size for request in requests)
        checked = {
            name: self._checker.check_array(self._outputs[name], array, rows)
            for name, array in arrays.items()
            if name in self._outputs
        }
        answers = []
        start = 0
        for request, names in zip(requests, wanted):
            end = start + request.batch_size
            answers.append(self._rows(checked, names, start, end))
            start = end
        return answers

    def _rows(self, checked: Mapping[str, Array], names: Sequence[str], start: int, end: int) -> list[OutputTensor]:
        """Return the outputs `names` of a request that has the rows from `start` to `end` of a batch."""
        answers = []
        for name in names:
            array = checked.get(name)
            if array is not None:
                answers.append(OutputTensor(name, self._outputs[name].datatype, array[start:end]))
            elif not self._may_omit_outputs:
                raise self._checker.missing(name)
        return answers

    def _whole(self, arrays: Mapping[str, Array], request: InferRequest, names: Sequence[str]) -> list[OutputTensor]:
        """Return the outputs `names` of a batch of one request: the arrays themselves."""
        answers = []
        for name in names:
            array = arrays.get(name)
            if array is not None:
                plan = self._outputs[name]
                answers.append(OutputTensor(name, plan.datatype, self._checker.check_array(plan, array, request.batch_size)))
            elif not self._may_omit_outputs:
                raise self._checker.missing(name)
        return answers
