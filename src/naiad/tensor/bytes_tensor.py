"""BYTES tensors in their binary form: each element is its length as uint32 little-endian, then its bytes.

Owns that form. In memory a BYTES tensor is a numpy object array whose elements are `bytes`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy import empty  # a model may put its own in the place of `np.empty`

_LENGTH = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview


def decode(buffer: Buffer, max_count: int) -> list[bytes]:
    """Return the elements in `buffer`, copied out of it, stopping after `max_count` + 1.

    The extra element tells the caller that there were too many without reading the rest. Raises ValueError when a length or an
    element is cut short; the text names the element's index.
    """
    elements: list[bytes] = []
    position, end = 0, len(buffer)
    unpack = _LENGTH.unpack_from
    while position < end and len(elements) <= max_count:
        if end - position < 4:
            raise ValueError(f"incomplete string length indicator for element {len(elements)}: {end - position} of 4 bytes")
        (length,) = unpack(buffer, position)
        position += 4
        if length > end - position:
            raise ValueError(
                f"incomplete string data for element {len(elements)}: expecting {length} bytes, {end - position} left"
            )
        elements.append(bytes(buffer[position : position + length]))
        position += length
    return elements


def encode(elements: Iterable[bytes]) -> bytes:
    """Return the binary form of `elements`, in order."""
    parts: list[bytes] = []
    pack = _LENGTH.pack
    for element in elements:
        parts.append(pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def as_array(elements: list[bytes], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return `elements` as an object array of `shape`; the caller has checked that the counts agree."""
    array = empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(shape)
