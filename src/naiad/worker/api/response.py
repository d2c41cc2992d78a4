"""`InferenceResponse`: what a model answers, and what a model that was called has answered.

Owns a response's value and the iterator over those of a call. Sending is the sender's part.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from naiad.worker.api.errors import TritonError, TritonModelException, check_type
from naiad.worker.api.tensor import Tensor
from naiad.worker.messages import Parameter, ResponseMessage

if TYPE_CHECKING:
    from naiad.worker.api.host import Call


_INT_LIMIT = 1 << 63


def checked_parameters(parameters: Mapping[str, Parameter] | None) -> dict[str, Parameter]:
    """Return a copy. Raises TritonModelException when a name isn't a str or a value isn't a bool, str, int of 64 bits or finite
    float.
    """
    if parameters is None:
        return {}
    check_type("parameters", parameters, Mapping)
    for name, value in parameters.items():
        check_type("a parameter's name", name, str)
        check_type(f"parameter '{name}'", value, bool, int, float, str)
        is_sendable = (
            math.isfinite(value) if isinstance(value, float) else isinstance(value, str) or -_INT_LIMIT <= value < _INT_LIMIT
        )
        if not is_sendable:
            raise TritonModelException(f"parameter '{name}' must be finite and, as an int, have 64 bits: it is {value}")
    return dict(parameters)


class InferenceResponse:
    """Tensors or an error, and parameters. With an error the tensors don't count."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Parameter] | None = None,
    ) -> None:
        """Raises TritonModelException when one of them has the wrong type."""
        self._tensors = list(output_tensors or ())
        for index, tensor in enumerate(self._tensors):
            check_type(f"item {index} of output_tensors", tensor, Tensor)
        if error is not None:
            check_type("the error of an InferenceResponse", error, TritonError)
        self._error = error
        self._parameters = checked_parameters(parameters)

    @classmethod
    def _received(cls, message: ResponseMessage, tensors: list[Tensor]) -> InferenceResponse:
        response = cls(tensors)
        if "error" in message:
            response._error = TritonError.received(*message["error"])
        response._parameters = message.get("parameters", {})
        return response

    def output_tensors(self) -> list[Tensor]:
        """Return the tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Return whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the error, None when there is none."""
        return self._error

    def parameters(self) -> str:
        """Return the parameters as a JSON object."""
        return json.dumps(self._parameters)

    def parameters_dict(self) -> dict[str, Parameter]:
        """Return the parameters."""
        return self._parameters


class ResponseIterator:
    """The responses of a decoupled call in order, for `for` or `async for`, once. A last one without tensors ends them when the
    called model sent its end apart. The call is given up when nobody holds the iterator any more.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._responses: Iterator[InferenceResponse] | None = None
        self._responses_async: AsyncIterator[InferenceResponse] | None = None

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        if self._responses is None:
            self._responses = self._call.responses()
        return next(self._responses)

    def __aiter__(self) -> ResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._responses_async is None:
            self._responses_async = self._call.responses_async()
        return await self._responses_async.__anext__()

    def cancel(self) -> None:
        """Give the call up: no further response comes."""
        self._call.cancel()


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """Return the output of that name, None when there is none or the response is an error."""
    if inference_response.has_error():
        return None
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)
