"""The body of a request as it arrives: one buffer, filled once, within its limit.

Owns the bytes. A body of known length above `DIRECT_SIZE` is received straight into its final place (`DirectReceiver`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

DIRECT_SIZE = 64 * 1024
ALIGNMENT = 64

Buffer = bytes | bytearray | memoryview


class Body:
    """A body of `length` bytes, or of unknown length (-1, chunked) up to `limit`.

    `aligned_offset` is the position in it that is put on a 64-byte boundary: where the tensors begin.
    """

    __slots__ = ("_buffer", "chunk_count", "length", "limit", "received")

    def __init__(self, length: int, limit: int, aligned_offset: int = 0) -> None:
        self.length = length
        self.limit = limit
        self.received = 0
        self.chunk_count = 0
        self._buffer: Buffer = b""
        if length > DIRECT_SIZE:
            self._buffer = _aligned_buffer(length, aligned_offset)
        elif length < 0:
            self._buffer = bytearray()

    @property
    def is_direct(self) -> bool:
        """Whether the bytes go straight into their final place."""
        return self.length > DIRECT_SIZE

    @property
    def is_over_limit(self) -> bool:
        """Whether more has arrived than is allowed; only a body of unknown length can get there."""
        return self.received > self.limit

    def add(self, data: bytes) -> None:
        """Take the next bytes; the parser never gives more than `length`."""
        start = self.received
        self.received = end = start + len(data)
        self.chunk_count += 1
        if start == 0 and end == self.length:
            self._buffer = data
            return
        if self.is_direct:
            self._buffer[start:end] = data  # type: ignore[index]
            return
        if start == 0 and self.length > 0:
            self._buffer = bytearray()
        if not self.is_over_limit:
            self._buffer += data  # type: ignore[operator]

    def remaining(self) -> memoryview:
        """Return the part of a direct body that is still to be received."""
        return memoryview(self._buffer)[self.received :]

    def take(self) -> Buffer:
        """Return the whole body; once."""
        buffer, self._buffer = self._buffer, b""
        return buffer


def _aligned_buffer(length: int, aligned_offset: int) -> memoryview:
    """Return `length` writable bytes whose position `aligned_offset` lies on a boundary. Memory that is never received into is
    never touched, so an announced length alone costs nothing.
    """
    raw: np.ndarray[Any, Any] = np.empty(length + ALIGNMENT, np.uint8)
    start = -(raw.ctypes.data + aligned_offset) % ALIGNMENT
    return raw.data[start : start + length]


class DirectReceiver(asyncio.BufferedProtocol):
    """Stands in for a connection while a large body arrives: the loop writes into the body's own buffer.

    It never asks for more than the body, so what is pipelined behind it stays in the socket.
    """

    def __init__(self, connection: asyncio.Protocol, body: Body, on_complete: Callable[[], None]) -> None:
        self._connection = connection
        self._body = body
        self._on_complete = on_complete

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._body.remaining()

    def buffer_updated(self, nbytes: int) -> None:
        """Count what was received; at the end the connection takes over again."""
        self._body.received += nbytes
        if self._body.received == self._body.length:
            self._on_complete()

    def eof_received(self) -> bool | None:
        """Pass the end of the stream on."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()
