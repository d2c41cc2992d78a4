"""The server's end of a worker's sockets: frames out, frames in, descriptors beside them.

Owns reading and writing on the event loop, which never waits for the worker. What a frame means is its owner's part.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from typing import Protocol

from naiad.memory.arena import Block
from naiad.worker.frames import Frame, FrameReader, Kind, pack

# Frames without a tail take a millisecond to be cut out of so much.
_RECEIVE_BYTES = 1 << 16
# So much is read after a worker's death: more than its socket holds, and an end for what its children may go on sending.
_LAST_BYTES = 1 << 20
_TURN_NS = 1_000_000
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class FrameHandler(Protocol):
    """Who takes what comes. Called on the loop thread; may close the socket."""

    def on_frame(self, frame: Frame) -> None:
        """A frame has come. Must not raise: the frames behind it would wait."""

    def on_broken(self, text: str) -> None:
        """The worker doesn't keep to the rules of the sockets: nothing more is read. `text` says what is wrong."""

    def on_end(self) -> None:
        """The other end was closed: nothing more can come."""


class FrameSocket:
    """See the module. Loop thread only. Sending to a worker that is gone does nothing: its death is seen elsewhere. `is_gone`
    tells when that is known here: what was sent last didn't arrive.

    A worker that doesn't read makes frames queue up here. Their number is bounded by what its instance sends without an answer,
    a few batches; `queued_bytes` tells.
    """

    def __init__(
        self, control: socket.socket, descriptors: socket.socket, loop: asyncio.AbstractEventLoop, handler: FrameHandler
    ) -> None:
        self._control = control
        self._descriptors = descriptors
        self._loop = loop
        self._handler = handler
        self._reader = FrameReader()
        self._received: deque[Frame] = deque()
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._later: list[bytes] = []
        self._queue: deque[memoryview] = deque()
        self._is_reading = True
        self._is_open = True
        self.is_gone = False
        loop.add_reader(control.fileno(), self._on_readable)

    @property
    def queued_bytes(self) -> int:
        """How many bytes of frames the worker hasn't taken."""
        return sum(map(len, self._queue)) + sum(map(len, self._later))

    def send(self, *parts: bytes) -> None:
        """Send whole frames, at once unless earlier ones still wait."""
        if not self._is_open:
            return
        if self._later:
            parts = (*self._later, *parts)
            self._later.clear()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._queue:
            self._queue.append(memoryview(data))
            return
        sent = self._write(data)
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:])
            self._loop.add_writer(self._control.fileno(), self._on_writable)

    def send_later(self, part: bytes) -> None:
        """Send a frame with the next one, or at the end of this turn of the loop."""
        if not self._later:
            self._loop.call_soon(self._flush_later)
        self._later.append(part)

    def send_segment(self, segment_id: int, fd: int, size: int) -> None:
        """Announce a segment of shared memory; `fd` may be closed afterwards."""
        if not self._is_open:
            return
        try:
            socket.send_fds(self._descriptors, [b"\0"], [fd])
        except BlockingIOError:
            # There is room for hundreds: an instance doesn't have so many under way.
            self._break("it takes no descriptors of shared memory")
        except OSError:
            # It is gone.
            return
        self.send(pack(Kind.SEGMENT, segment_id, block=Block(segment_id, 0, size)))

    def receive_descriptor(self) -> int | None:
        """Return the descriptor that came with a SEGMENT frame, None when there is none: the worker is broken then."""
        try:
            _, fds, _, _ = socket.recv_fds(self._descriptors, 1, 1, _CLOSE_ON_EXEC)
        except OSError:
            return None
        if not fds:
            return None
        os.set_inheritable(fds[0], False)
        return fds[0]

    def drain(self) -> None:
        """Take what a worker sent before it died."""
        for _ in range(_LAST_BYTES // _RECEIVE_BYTES):
            while self._received and self._is_open:
                self._handler.on_frame(self._received.popleft())
            if not self._is_reading or not self._receive():
                break
        while self._received and self._is_open:
            self._handler.on_frame(self._received.popleft())

    def close(self) -> None:
        """Close both sockets; what waits to be sent or taken is dropped."""
        if not self._is_open:
            return
        self._stop_reading()
        if self._queue:
            self._loop.remove_writer(self._control.fileno())
        self._is_open = False
        self._queue.clear()
        self._later.clear()
        self._received.clear()
        self._control.close()
        self._descriptors.close()

    # Out.

    def _write(self, data: bytes | memoryview) -> int:
        """Return how much the socket took; all of it when the other end is gone."""
        try:
            return self._control.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.is_gone = True
            return len(data)

    def _on_writable(self) -> None:
        queue = self._queue
        while queue:
            sent = self._write(queue[0])
            if sent < len(queue[0]):
                queue[0] = queue[0][sent:]
                return
            queue.popleft()
        self._loop.remove_writer(self._control.fileno())

    def _flush_later(self) -> None:
        if self._later:
            self.send()

    # In.

    def _on_readable(self) -> None:
        if not self._received and self._receive():
            self._dispatch()

    def _receive(self) -> bool:
        """Read once; return whether anything came."""
        try:
            data = bytes(self._buffer[: self._control.recv_into(self._buffer)])
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:
            data = b""
        if not data:
            self.is_gone = True
            self._stop_reading()
            self._handler.on_end()
            return False
        try:
            self._received.extend(self._reader.feed(data))
        except ValueError as error:
            self._break(str(error))
            return False
        return True

    def _dispatch(self) -> None:
        """Pass frames on for about a millisecond; the rest has its turn after the other sockets'."""
        received, on_frame = self._received, self._handler.on_frame
        if len(received) == 1:
            on_frame(received.popleft())
            return
        end_ns = time.monotonic_ns() + _TURN_NS
        while received:
            on_frame(received.popleft())
            if received and time.monotonic_ns() > end_ns:
                self._loop.call_soon(self._dispatch)
                return

    def _break(self, text: str) -> None:
        self._stop_reading()
        self._handler.on_broken(text)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._control.fileno())
