"""Datatypes as Python models name them: Triton's numbers, ModelConfig's names, numpy's dtypes; and the form of BYTES tensors.

Owns which numpy dtype is which datatype. No dtype is ever cast to fit: a dtype that has no datatype of exactly its values has
none. BF16 has no numpy dtype of numpy's own; arrays of ml_dtypes' `bfloat16` are known by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import numpy as np

from naiad.tensor import bytes_tensor, datatype
from naiad.worker.api.errors import TritonModelException

Array = np.ndarray[Any, Any]

NUMBERS = MappingProxyType(
    {
        name: number
        for number, name in enumerate(
            (
                *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
                *("FP16", "FP32", "FP64", "BYTES", "BF16"),
            ),
            1,
        )
    }
)
"""Triton's number of each datatype."""

_NUMPY_TYPES: dict[str, type[Any]] = {
    item.name: np.object_ if item is datatype.BYTES else item.numpy.type for item in datatype.ALL if item is not datatype.BF16
}
_BY_NUMBER = {NUMBERS[name]: numpy_type for name, numpy_type in _NUMPY_TYPES.items()}
_BY_KIND = {
    (item.numpy.kind, item.size_bytes): item.name for item in datatype.ALL if item not in (datatype.BYTES, datatype.BF16)
}
_TEXT_KINDS = "OSUT"

TRITON_STRING_TO_NUMPY: dict[str, type[Any]] = {
    datatype.BY_NAME[name].config_name: numpy_type for name, numpy_type in _NUMPY_TYPES.items()
}
"""The numpy type of each datatype of a ModelConfig: {"TYPE_FP32": numpy.float32, …, "TYPE_STRING": numpy.object_}."""


def datatype_of(dtype: np.dtype[Any]) -> str | None:
    """Return the protocol's name (FP32) of the datatype that holds `dtype` exactly, of any byte order; None without one."""
    name = _BY_KIND.get((dtype.kind, dtype.itemsize))
    if name is None and dtype.kind in _TEXT_KINDS:
        return "BYTES"
    return "BF16" if name is None and dtype.name == "bfloat16" else name


def triton_to_numpy_type(data_type: int) -> type[Any]:
    """Return the numpy type of Triton's number. Raises TritonModelException for one without a numpy type, as BF16 is."""
    found = _BY_NUMBER.get(int(data_type))
    if found is None:
        raise TritonModelException(f"there is no numpy type for the datatype with number {data_type}")
    return found


def numpy_to_triton_type(data_type: Any) -> int:
    """Return Triton's number for a numpy type or dtype. Raises TritonModelException for one without a datatype."""
    name = datatype_of(np.dtype(data_type))
    if name is None:
        raise TritonModelException(f"there is no datatype for numpy's {np.dtype(data_type)}")
    return NUMBERS[name]


def triton_string_to_numpy(triton_type_string: str) -> type[Any]:
    """Return the numpy type of a datatype's name in a ModelConfig, such as TYPE_FP32. Raises TritonModelException otherwise."""
    found = TRITON_STRING_TO_NUMPY.get(triton_type_string)
    if found is None:
        known = ", ".join(TRITON_STRING_TO_NUMPY)
        raise TritonModelException(f"there is no numpy type for '{triton_type_string}', only for: {known}")
    return found


def serialize_byte_tensor(input_tensor: Array) -> bytes:
    """Return the binary form of a tensor of strings: each element as its length (uint32, little-endian) and its bytes.

    Raises TritonModelException when an element has no bytes, see `text_elements`.
    """
    return bytes_tensor.encode(text_elements(np.asarray(input_tensor)))


def deserialize_bytes_tensor(encoded_tensor: bytes | bytearray | memoryview) -> Array:
    """Return the object array of `bytes`, shape [n], whose binary form this is. Raises TritonModelException when it is cut."""
    buffer = memoryview(encoded_tensor).cast("B")
    try:
        elements = bytes_tensor.decode(buffer, len(buffer))
    except ValueError as error:
        raise TritonModelException(str(error)) from None
    return bytes_tensor.as_array(elements, (len(elements),))


def text_elements(array: Array) -> Iterable[bytes]:
    """Yield the elements of an array of strings or objects in C order, as bytes.

    `bytes` stay as they are, `str` becomes UTF-8, a number its `str()`. numpy's fixed-width strings end at their last character
    that isn't NUL: numpy itself can't tell trailing NULs from padding. Raises TritonModelException for None and for other
    objects, with the element's index and type.
    """
    dtype = array.dtype
    if dtype.kind == "S":
        yield from array.ravel().tolist()
    elif dtype.kind in _TEXT_KINDS:
        for position, element in enumerate(array.ravel().astype(object, copy=False).tolist()):
            yield element if type(element) is bytes else _as_bytes(element, array.shape, position)
    else:
        raise TritonModelException(f"an array of strings is needed, of dtype object, S or U: this one has dtype {dtype}")


def _as_bytes(element: Any, shape: tuple[int, ...], position: int) -> bytes:
    if isinstance(element, str):
        try:
            return element.encode()
        except UnicodeEncodeError as error:
            place = _place(shape, position)
            raise TritonModelException(f"element {place} is a str that has no UTF-8 form: {error.reason}") from None
    if isinstance(element, (bytes, bytearray)):
        return bytes(element)
    if isinstance(element, (bool, int, float, np.bool_, np.integer, np.floating)):
        return str(element).encode()
    kind = "None" if element is None else f"a {type(element).__name__}"
    raise TritonModelException(f"element {_place(shape, position)} is {kind}, must be bytes or str")


def _place(shape: tuple[int, ...], position: int) -> str:
    return f"[{', '.join(str(int(index)) for index in np.unravel_index(position, shape))}]"
