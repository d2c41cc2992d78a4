"""The tensors of a batch for a backend that takes requests one by one: nothing is joined, nothing is cut.

Owns the step to `SingleRequest` and back. Doesn't own the checks of outputs (`tensors`). Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from naiad.backends.base import SingleRequest
from naiad.errors import internal
from naiad.execution.tensors import BatchTensors
from naiad.request.request import InferRequest
from naiad.request.response import OutputTensor


class RequestTensors:
    """Stands in for `BatchTensors`, of which it makes use."""

    __slots__ = ("_tensors",)

    def __init__(self, tensors: BatchTensors) -> None:
        self._tensors = tensors

    def gather(self, requests: Sequence[InferRequest]) -> list[SingleRequest]:
        """Return what the backend gets: each request with arrays of its own."""
        return [
            SingleRequest(self._tensors.gather([request]), request.outputs, request.parameters, request.id)
            for request in requests
        ]

    def split(self, results: object, requests: Sequence[InferRequest]) -> list[list[OutputTensor]]:
        """Return each request's outputs. Raises INTERNAL when `results` isn't a list with arrays by name for each request."""
        if not isinstance(results, list | tuple) or len(results) != len(requests):
            found = f"{len(results)} results" if isinstance(results, list | tuple) else f"a {type(results).__name__}"
            raise internal(f"the model returned {found} for {len(requests)} requests, must be a list with a result for each")
        return [self._tensors.split(result, [request])[0] for result, request in zip(results, requests)]
