"""Between the arrays that a Python program holds and those that the server holds.

Owns that conversion: strings (str, bytes and numpy's fixed-width kinds outside, object arrays of `bytes` inside), bfloat16
(ml_dtypes' outside, its bits as uint16 inside), byte order. Numbers are never converted: a wrong dtype is an error elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.errors import invalid_argument
from naiad.tensor import datatype as datatypes
from naiad.tensor.datatype import BF16, BOOL, BYTES, Datatype

Array = np.ndarray[Any, Any]

_BFLOAT16 = "bfloat16"
_STRING_KINDS = "OSU"
_BY_NUMPY = {known.numpy: known for known in datatypes.ALL if known is not BF16}


def datatype_of(dtype: Any, what: str) -> Datatype:
    """Return the datatype for a numpy dtype, `bytes`, `str`, `bfloat16`, or the protocol's name.

    Raises INVALID_ARGUMENT, beginning with `what`, for one that the protocol doesn't have.
    """
    if dtype is None:
        raise invalid_argument(f"{what} has no dtype")
    if isinstance(dtype, str) and dtype in datatypes.BY_NAME:
        return datatypes.BY_NAME[dtype]
    try:
        return _datatype(np.dtype(dtype))
    except (KeyError, TypeError):
        raise invalid_argument(f"{what}: dtype {dtype!r} is none of {', '.join(datatypes.BY_NAME)}") from None


def to_server(value: Any, what: str) -> tuple[Datatype, Array]:
    """Return a program's array, or what numpy makes one of, with its datatype in the form that the server holds.

    Numbers that are contiguous and little-endian aren't copied. Raises INVALID_ARGUMENT, beginning with `what`, for a dtype
    that the protocol doesn't have and for an element of an object array that is neither str nor bytes.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise invalid_argument(f"{what} is no array: {error}") from error
    datatype = datatype_of(array.dtype, what)
    if datatype is BYTES:
        return BYTES, as_bytes(array, what)
    if datatype is BF16:
        array = array.view(BF16.numpy)
    # A 0-d array would become 1-d in ascontiguousarray.
    return datatype, np.asarray(np.require(array, datatype.numpy, "C") if array.ndim else array.astype(datatype.numpy))


def as_bytes(array: Array, what: str) -> Array:
    """Return an array of strings as an object array of `bytes`, str in UTF-8. Raises as `to_server` does."""
    if array.dtype.kind == "S":
        return np.asarray(array.astype(object))
    encoded = np.empty(array.shape, dtype=object)
    flat = encoded.reshape(-1)
    for index, element in enumerate(array.reshape(-1)):
        flat[index] = _element(element, index, what)
    return encoded


def from_server(datatype: Datatype, array: Array) -> Array:
    """Return the server's array as a program sees it, without a copy: bfloat16 as such, all else as it is."""
    if datatype is not BF16:
        return array
    import ml_dtypes  # noqa: PLC0415 — few models have such tensors

    return np.asarray(array.view(ml_dtypes.bfloat16))


def read_only(array: Array) -> Array:
    """Return a view that can't be written to."""
    view = array.view()
    view.flags.writeable = False
    return np.asarray(view)


def _datatype(dtype: np.dtype[Any]) -> Datatype:
    if dtype.kind in _STRING_KINDS:
        return BYTES
    if dtype.name == _BFLOAT16:
        return BF16
    return BOOL if dtype.kind == "b" else _BY_NUMPY[dtype.newbyteorder("<")]


def _element(element: Any, index: int, what: str) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        try:
            return element.encode()
        except UnicodeEncodeError as error:
            raise invalid_argument(f"{what}: element {index} is no valid text: {error}") from None
    raise invalid_argument(f"{what}: element {index} is a {type(element).__name__}, must be str or bytes")
