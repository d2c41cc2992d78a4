"""The worker's end of the control socket.

Owns reading and writing of frames on any thread. There is no reading thread: whoever waits for something reads, and others who
wait meanwhile are woken by him. So the main thread gets a batch without a hand-over, and a model that computes for an hour
costs nothing. What a frame means is the runtime's part.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from naiad.worker.frames import Frame, FrameReader

_RECEIVE_BYTES = 1 << 16
# When more frames than this were posted behind somebody who sends, those who post more wait for him a little.
_MAX_POSTED = 256
_FLOOD_WAIT_S = 0.1


class Channel:
    """See the module.

    `dispatch` is called with each frame while `mutex` is held: it must not send, wait, or run code of the model. `on_end` is
    called when the server is gone (None), or what it says can't be taken (why): it doesn't return, for the frames behind that
    one are lost.
    """

    def __init__(
        self, sock: socket.socket, dispatch: Callable[[Frame], None], on_end: Callable[[BaseException | None], None]
    ) -> None:
        self.mutex = threading.Condition(threading.Lock())
        self._sock = sock
        self._dispatch = dispatch
        self._on_end = on_end
        self._frames = FrameReader()
        # A new buffer of that size each time would come from the system and go back to it.
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        # Not `select`, which can't take a descriptor above 1023, as those of a large server are.
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self._has_reader = False
        self._waiters = 0
        self._send_lock = threading.Lock()
        self._outbox: deque[bytes] = deque()
        # Weak: coroutines of a loop that was closed under them never leave.
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._is_abandoned = False

    def send(self, data: bytes) -> None:
        """Send whole frames, after those that were posted before; blocks while the server doesn't take them."""
        with self._send_lock:
            self._sendall(self._posted() + data if self._outbox else data)
        if self._outbox:
            self._flush()

    def send_with_descriptor(self, data: bytes, descriptors: socket.socket, fd: int) -> None:
        """Send `fd` over the socket `descriptors`, then the frames that speak of it."""
        with self._send_lock:
            socket.send_fds(descriptors, [b"\0"], [fd])
            self._sendall(self._posted() + data)
        if self._outbox:
            self._flush()

    def post(self, data: bytes) -> None:
        """Send whole frames from a place that may hold any lock, such as a garbage collection: at once, or right after who is
        sending now.
        """
        if self._is_abandoned:
            return
        self._outbox.append(data)
        self._flush()

    def abandon(self) -> None:
        """Let go of the socket in a process forked from this one, which goes on using it: posts come to nothing, whatever else
        is tried fails.
        """
        self._is_abandoned = True
        self._sock.close()
        self._outbox.clear()
        # Threads that held them aren't in this process.
        self._send_lock = threading.Lock()
        self.mutex = threading.Condition(threading.Lock())

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Return True when `is_done()`, which is called with the mutex held, or False when the time is up; read meanwhile."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.mutex:
            while not is_done():
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                if self._has_reader:
                    self._wait_for_reader(left_s)
                else:
                    self._read(left_s)
        return True

    def poll(self) -> None:
        """Take what has come, without waiting; nothing when somebody reads already."""
        with self.mutex:
            if not self._has_reader:
                self._take_ready()

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop`, which runs on this thread, read as often as `leave` hasn't been called for it."""
        count = self._loops.get(loop, 0)
        if not count:
            loop.add_reader(self._sock.fileno(), self.poll)
        self._loops[loop] = count + 1

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take one `read_on` back."""
        # A loop that is garbage together with its coroutines has left before them.
        count = self._loops.pop(loop, 1) - 1
        if count:
            self._loops[loop] = count
        elif not loop.is_closed():
            loop.remove_reader(self._sock.fileno())

    def _wait_for_reader(self, timeout_s: float | None) -> None:
        self._waiters += 1
        try:
            self.mutex.wait(timeout_s)
        finally:
            self._waiters -= 1

    def _read(self, timeout_s: float | None) -> None:
        """Be the reader for one turn; the mutex is held before and after, not while waiting."""
        self._has_reader = True
        self.mutex.release()
        data = None
        try:
            if timeout_s is None or self._poller.poll(timeout_s * 1000):
                data = self._receive(0)
        finally:
            self.mutex.acquire()
            self._has_reader = False
            if self._waiters:
                self.mutex.notify_all()
        if data is not None:
            self._take(data)

    def _take_ready(self) -> None:
        data = self._receive(socket.MSG_DONTWAIT)
        if data is not None:
            self._take(data)

    def _receive(self, flags: int) -> bytes | None:
        """Return what has come, None when that is nothing."""
        try:
            return bytes(self._received[: self._sock.recv_into(self._received, 0, flags)])
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _take(self, data: bytes) -> None:
        if not data:
            self._on_end(None)
        try:
            for frame in self._frames.feed(data):
                self._dispatch(frame)
        except BaseException as error:
            self._on_end(error)
        if self._waiters:
            self.mutex.notify_all()

    def _flush(self) -> None:
        """Send what was posted, unless somebody sends now: he does it when he is through.

        In a flood one waits for him, so that he gets through; not for long, since he may be this very thread, in a garbage
        collection.
        """
        while self._outbox and self._send_lock.acquire(timeout=_FLOOD_WAIT_S if len(self._outbox) > _MAX_POSTED else 0):
            try:
                self._sendall(self._posted())
            finally:
                self._send_lock.release()

    def _posted(self) -> bytes:
        """Take what is in the outbox; the lock on sending is held."""
        return b"".join([self._outbox.popleft() for _ in range(len(self._outbox))])

    def _sendall(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._on_end(None)
