"""A queued request as a batch strategy sees it: everything can be read, nothing changed.

Owns the names that users' strategies rely on, see docs/how-to/decide-what-joins-a-batch.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from naiad.config.plan import TensorPlan
from naiad.request.call import Parameter
from naiad.request.request import InferRequest


class InputView:
    """One input: `shape` is the client's, with the batch dimension; `datatype` is the protocol's name of it, "FP32"."""

    __slots__ = ("_array", "datatype")

    def __init__(self, array: np.ndarray[Any, Any], datatype: str) -> None:
        self._array = array
        self.datatype = datatype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, with the batch dimension first."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The values as a read-only array; nothing is copied."""
        view: np.ndarray[Any, Any] = self._array.view()
        view.flags.writeable = False
        return view


class RequestView:
    """One request. Valid while it is asked about: who keeps it keeps the request's tensors in memory."""

    __slots__ = ("_request", "_tensors")

    def __init__(self, request: InferRequest, tensors: Mapping[str, TensorPlan]) -> None:
        self._request = request
        self._tensors = tensors

    @property
    def id(self) -> str:
        """The client's id of the request, "" without one."""
        return self._request.id

    @property
    def batch_size(self) -> int:
        """How many items it has."""
        return self._request.batch_size

    @property
    def inputs(self) -> Mapping[str, InputView]:
        """Its inputs by name; optional ones that weren't sent are missing."""
        tensors = self._tensors
        return {name: InputView(array, tensors[name].datatype.name) for name, array in self._request.inputs.items()}

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters that the client sent."""
        return MappingProxyType(self._request.parameters)

    @property
    def priority(self) -> int:
        """The priority that the client sent, 0 without one."""
        return self._request.priority

    @property
    def timeout_us(self) -> int:
        """How long the client lets it queue, in microseconds, 0 without a limit."""
        return self._request.timeout_us

    @property
    def correlation_id(self) -> int | str:
        """The sequence's id that the client sent, 0 without one."""
        sequence = self._request.sequence
        return 0 if sequence is None else sequence.id
