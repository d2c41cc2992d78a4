"""One call of `infer`: which requests it is for, what it is given, and how what it returns becomes their answers.

Owns joining and splitting of batches. Requests are joined when they have the same inputs with the same dtype and, but for the
first dim, shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from naiad.model.request import Array, Request, Response, as_inference_response
from naiad.worker.api.response import InferenceResponse


class Call(Protocol):
    """See the module."""

    argument: Any
    """What `infer` is given."""
    count: int
    """How many requests it is for."""

    def responses(self, returned: Any) -> list[InferenceResponse]:
        """Return the response to each request, in order. Raises TypeError or ValueError when `infer` may not return that."""


class ListCall:
    """`infer` takes the requests and returns their answers."""

    def __init__(self, requests: list[Request]) -> None:
        self.argument = requests
        self.count = len(requests)

    def responses(self, returned: Any) -> list[InferenceResponse]:
        """See `Call.responses`."""
        if not isinstance(returned, (list, tuple)):
            raise TypeError(f"infer must return a list with an answer to each request, not a {type(returned).__name__}")
        if len(returned) != self.count:
            raise ValueError(f"infer got {self.count} requests and returned {len(returned)} answers")
        return [as_inference_response(answer) for answer in returned]


class BatchedCall:
    """`infer` takes joined arrays and returns arrays to be split."""

    def __init__(self, requests: Sequence[Request]) -> None:
        inputs = [request.inputs for request in requests]
        first = inputs[0]
        self.argument: dict[str, Array] = {
            name: first[name] if len(inputs) == 1 else np.concatenate([arrays[name] for arrays in inputs]) for name in first
        }
        self.count = len(requests)
        self._rows = [len(next(iter(arrays.values()))) for arrays in inputs]

    def responses(self, returned: Any) -> list[InferenceResponse]:
        """See `Call.responses`."""
        outputs = returned.outputs if isinstance(returned, Response) else returned
        if not isinstance(outputs, Mapping):
            raise TypeError(f"a batched infer must return a dict of arrays, not a {type(returned).__name__}")
        parameters = returned.parameters if isinstance(returned, Response) else {}
        expected = sum(self._rows)
        for name, array in outputs.items():
            shape = tuple(getattr(array, "shape", ()))
            if not shape or shape[0] != expected:
                raise ValueError(f"output '{name}' of infer must have {expected} rows, as its inputs: its shape is {shape}")
        answers, begin = [], 0
        for rows in self._rows:
            part = {name: array[begin : begin + rows] for name, array in outputs.items()}
            answers.append(as_inference_response(Response(part, parameters)))
            begin += rows
        return answers


def batched_calls(requests: Sequence[Request]) -> list[Call]:
    """Return the calls for a batch: neighbours that can be joined are."""
    groups: list[list[Request]] = []
    last: Any = None
    for request in requests:
        key = {name: (array.dtype, array.shape[1:]) for name, array in request.inputs.items()}
        if groups and key == last:
            groups[-1].append(request)
        else:
            groups.append([request])
        last = key
    return [BatchedCall(group) for group in groups]
