"""The frames between the server and its JSON helper: a small head, a JSON value, and bytes.

Owns their layout. Both sides are of the same Naiad, so there is no version in it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import orjson

Buffer = bytes | bytearray | memoryview

# kind, size of the JSON value, size of the bytes
_HEAD = struct.Struct("<BQQ")

READ_REQUEST = 1
WRITE_RESPONSE = 2
DONE = 3
FAILED = 4


class Pipe(Protocol):
    """An end of a pipe without a buffer of its own."""

    def write(self, data: Buffer, /) -> int | None:
        """Write some of `data`; return how much."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill some of `buffer`; return how much, 0 at the end."""


def send(pipe: Pipe, kind: int, value: Any, parts: Sequence[Buffer]) -> None:
    """Send one frame; `parts` are its bytes, one after the other. Raises OSError when the other side is gone."""
    text = orjson.dumps(value)
    _write(pipe, _HEAD.pack(kind, len(text), sum(map(len, parts))) + text)
    for part in parts:
        _write(pipe, part)


def receive(pipe: Pipe) -> tuple[int, Any, memoryview]:
    """Return the next frame's kind, value and bytes. Raises EOFError when the other side is gone."""
    kind, text_size, size = _HEAD.unpack(_read(pipe, _HEAD.size))
    value = orjson.loads(_read(pipe, text_size))
    return kind, value, _read(pipe, size)


def _write(pipe: Pipe, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) or 0 :]


def _read(pipe: Pipe, size: int) -> memoryview:
    # Memory that isn't touched before it is filled: pages of a large body are made once.
    buffer = np.empty(size, np.uint8).data
    position = 0
    while position < size:
        count = pipe.readinto(buffer[position:])
        if not count:
            raise EOFError("the other side closed the pipe")
        position += count
    return buffer
