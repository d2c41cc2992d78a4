"""When two requests to one loaded model are the same: the digest of all that an answer depends on.

Owns what goes into the digest. SHA-256 and not a faster hash: a client that could make two requests with one key could put its
own answer in the place of another's. What the digest leaves out, and why, is said at `request_key`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from naiad.request.request import InferRequest
from naiad.tensor import bytes_tensor


def request_key(request: InferRequest) -> bytes:
    """Return the 32 bytes that requests to one loaded model share when they have to be answered alike.

    In it are names, shapes and elements of the inputs, the custom parameters (forwarded headers are among them) with their
    types, and the wanted outputs in their order. The datatypes are the model's. Not in it: the request's id, which answers get
    anew; priority and time-out, which say when and not what; classes and shared memory of outputs, which are made of the kept
    answer for each request; what belongs to sequences, as these are never kept.
    """
    inputs = sorted(request.inputs.items()) if len(request.inputs) > 1 else list(request.inputs.items())
    parameters = sorted(request.parameters.items()) if request.parameters else ()
    # The representation of plain values is unambiguous: 1, 1.0, True and "1" differ, and quotes are escaped.
    head = repr((request.outputs, [(name, array.shape) for name, array in inputs], parameters)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"%d:" % len(head))
    digest.update(head)
    for _, array in inputs:
        digest.update(_data(array))
    return digest.digest()


def hashed_bytes(request: InferRequest) -> int:
    """Return about how many bytes `request_key` has to read."""
    return sum([_size_bytes(array) for array in request.inputs.values()])


def _data(array: np.ndarray[Any, Any]) -> Any:
    """Return the elements as one buffer whose length says nothing new: the shape tells it, or each string its own."""
    if array.dtype.hasobject:
        return bytes_tensor.encode(array.flat)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _size_bytes(array: np.ndarray[Any, Any]) -> int:
    if not array.dtype.hasobject:
        return array.nbytes
    # A string costs as much as some hundred bytes, whatever it holds.
    return sum([len(element) for element in array.flat]) + 128 * array.size if array.size < 1024 else 1 << 30
