"""What a response cache is to a model, and the value that it keeps.

Owns the seam and `CachedResponse`. Doesn't own what makes two requests the same (`key`) nor where values lie (`local`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from naiad.observability.prometheus_text import Family
from naiad.request.call import Parameter
from naiad.request.response import OutputTensor
from naiad.tensor.datatype import Datatype

# What an entry and a tensor of it take beside their elements: so many small answers can't take more than they may.
_ENTRY_BYTES = 512
_TENSOR_BYTES = 256
_STRING_BYTES = 64
# Looking at more of them takes too long for the loop.
_MANY_STRINGS = 1024
_LARGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class CachedTensor:
    """One output in memory of its own; `array` can't be written to."""

    name: str
    datatype: Datatype
    array: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """One answer in memory of its own, for any number of requests. `size_bytes` is what it takes, with overhead; `mark` is this
    answer's own, and is known without keeping the answer in memory.
    """

    tensors: tuple[CachedTensor, ...]
    parameters: Mapping[str, Parameter]
    size_bytes: int
    mark: object = field(default_factory=object, compare=False)

    def outputs(self) -> list[OutputTensor]:
        """Return the outputs for one request, whose sink may change the list and its items, but not the arrays."""
        return [OutputTensor(tensor.name, tensor.datatype, tensor.array) for tensor in self.tensors]


Found = CachedResponse | None | asyncio.Future[CachedResponse | None]
"""What a look-up gives."""


class ResponseCache(Protocol):
    """Where responses are kept. Loop thread only; nothing here blocks, raises or waits.

    `generation` is a loaded model: what another load of it has stored is never found, unless both have one generation.
    `is_shared`: other servers use the same entries, and they outlive this one.
    """

    is_shared: bool

    def accepts(self, size_bytes: int) -> bool:
        """Return whether a response of this size can be kept at all."""

    def lookup(self, generation: bytes, key: bytes) -> Found:
        """Return the response, None when there is none, or a future of either, which nobody cancels and that never fails."""

    def confirms(self, generation: bytes, key: bytes, mark: object) -> bool:
        """Return whether a look-up would give the response with `mark`, at once; it counts as one then, and not when not."""

    def insert(self, generation: bytes, key: bytes, response: CachedResponse) -> None:
        """Keep a response, in place of one with the same key; others may have to go."""

    def forget(self, generation: bytes) -> None:
        """Give back, in time, what a model stored that no longer serves."""

    async def close(self) -> None:
        """Give back what it has open, at the end of the server."""

    def families(self) -> Iterable[Family]:
        """Return the metric families of the whole cache."""


def data_bytes(outputs: Sequence[OutputTensor | CachedTensor]) -> int:
    """Return about how many bytes copying `outputs` moves. Many strings count as very large, whatever they hold."""
    return sum([_data_bytes(output.array) for output in outputs])


def copy_of(outputs: Sequence[OutputTensor], parameters: Mapping[str, Parameter]) -> CachedResponse:
    """Return `outputs` in memory of their own; may run on any thread. Raises MemoryError."""
    return response_of([CachedTensor(output.name, output.datatype, _own(output.array)) for output in outputs], parameters)


def response_of(tensors: Sequence[CachedTensor], parameters: Mapping[str, Parameter]) -> CachedResponse:
    """Return a response of tensors that nobody else can change."""
    size_bytes = _ENTRY_BYTES + sum([_TENSOR_BYTES + _all_bytes(tensor.array) for tensor in tensors])
    return CachedResponse(tuple(tensors), dict(parameters), size_bytes)


def _own(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    own = np.array(array, order="C", copy=True, subok=False)
    own.setflags(write=False)
    return own


def _data_bytes(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.hasobject and array.size > _MANY_STRINGS:
        return _LARGE_BYTES
    return _all_bytes(array)


def _all_bytes(array: np.ndarray[Any, Any]) -> int:
    if not array.dtype.hasobject:
        return array.nbytes
    return sum([_STRING_BYTES + len(element) for element in array.flat])
