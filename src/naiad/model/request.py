"""`Request` and `Response`: one request of a client, and one answer to it.

Owns the way between arrays by name and the tensors of the model API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from naiad.model.errors import ModelError, to_triton
from naiad.worker.api.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor

Array = np.ndarray[Any, Any]
Parameter = str | int | bool | float


class Arrays(Mapping[str, Array]):
    """Arrays by name, made of tensors when they are asked for. Strings are object arrays of `bytes`."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name].as_numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


class Request:
    """One request. Its arrays are views of shared memory; they may be written to, and kept.

    `inputs` maps names to arrays, `tensors` the same names to what DLPack takes: `torch.from_dlpack(request.tensors["X"])`, the
    only way to a BF16 input.
    """

    __slots__ = ("_request", "inputs")

    def __init__(self, request: InferenceRequest) -> None:
        self._request = request
        self.inputs = Arrays({tensor.name(): tensor for tensor in request.inputs()})

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The inputs as tensors with `__dlpack__`."""
        return self.inputs.tensors

    @property
    def id(self) -> str:
        """The client's name for the request, "" without one."""
        return self._request.request_id()

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs that the client wants; others may be left out."""
        return self._request.requested_output_names()

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The request's custom parameters."""
        return self._request.parameters_dict()

    @property
    def is_cancelled(self) -> bool:
        """Whether the client is gone."""
        return self._request.is_cancelled()

    @property
    def sequence_id(self) -> int | str:
        """The id of the sequence it is part of; 0 or "" for none."""
        return self._request.correlation_id()

    @property
    def is_sequence_start(self) -> bool:
        """Whether it is the first of its sequence."""
        return bool(self._request.flags() & SEQUENCE_START)

    @property
    def is_sequence_end(self) -> bool:
        """Whether it is the last of its sequence."""
        return bool(self._request.flags() & SEQUENCE_END)


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: arrays by output name, or what has `__dlpack__` in their place. `parameters` go along."""

    outputs: Mapping[str, Any]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def as_tensors(arrays: Mapping[str, Any]) -> list[Tensor]:
    """Return tensors of arrays. Raises TritonModelException for what is neither a numpy array nor has DLPack."""
    return [
        Tensor.from_dlpack(name, value)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
        else Tensor(name, value)
        for name, value in arrays.items()
    ]


def as_inference_response(answer: object) -> InferenceResponse:
    """Return the model API's form of a Response, a mapping of arrays, or a ModelError. Raises TypeError for others."""
    if isinstance(answer, ModelError):
        return InferenceResponse(error=to_triton(answer))
    if isinstance(answer, Response):
        return InferenceResponse(as_tensors(answer.outputs), parameters=answer.parameters)
    if isinstance(answer, Mapping):
        return InferenceResponse(as_tensors(answer))
    raise TypeError(f"an answer must be a Response, a dict of arrays or a ModelError, not a {type(answer).__name__}")
