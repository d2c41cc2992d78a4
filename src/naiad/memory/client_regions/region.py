"""`Region`: a piece of a client's shared memory object, mapped.

Owns the mapping, the descriptor and the count of users. A client can shrink its object at any time, and touching a mapped page
beyond the new end kills the process (SIGBUS): so the size is asked for before each use, and on Linux copies are
read, and everything is written, by system calls, which only fail.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from functools import partial

from naiad.errors import InferenceServerError, internal, invalid_argument
from naiad.memory.client_regions.piece import check_piece
from naiad.memory.client_regions.posix_object import open_object

# Copying as much takes some 0.2 ms of the event loop.
LARGE_BYTES = 1 << 20

_IS_LINUX = sys.platform == "linux"

Buffer = bytes | bytearray | memoryview
Discard = Callable[[Callable[[], None]], None]
"""Runs what closes a large region, which takes long when its pages are freed by that."""


class Region:
    """`size_bytes` bytes from `offset` in the object `key`, known to clients as `name`.

    Made with one user, who made it; the descriptor is closed when the last has released it. Views that were handed out stay
    good for as long as they are kept. `read`, `view` and `write` may be called on any thread, the rest on the loop thread.
    """

    __slots__ = ("_discard", "_fd", "_memory", "_users", "key", "name", "offset", "size_bytes")
    is_on_device = False

    def __init__(self, name: str, key: str, offset: int, size_bytes: int, discard: Discard | None = None) -> None:
        """Open and map it. Raises INVALID_ARGUMENT for a bad key, offset or size, INTERNAL when the system doesn't open it."""
        self.name = name
        self.key = key
        self.offset = offset
        self.size_bytes = size_bytes
        self._users = 1
        self._discard = discard
        _check_alignment(name, offset)
        self._fd = open_object(key)
        try:
            self._memory: memoryview | None = _map(self._fd, name, offset, size_bytes)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def users(self) -> int:
        """How many hold it: the registry, while it is registered, and the requests that use it."""
        return self._users

    def hold(self) -> None:
        """Count one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less; the last one closes it."""
        self._users -= 1
        if self._users:
            return
        close = partial(_close, self._fd, self._memory)
        self._memory = None
        if self._discard is None or self.size_bytes <= LARGE_BYTES:
            close()
        else:
            self._discard(close)

    def check_range(self, offset: int, size_bytes: int) -> None:
        """Raise INVALID_ARGUMENT unless `size_bytes` bytes from `offset` lie in the region and its object still has them."""
        check_piece(self.name, self.size_bytes, offset, size_bytes)
        if os.fstat(self._fd).st_size < self.offset + offset + size_bytes:
            raise self._shrunk()

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return a copy of these bytes, which nothing can hurt. Raises as `check_range`."""
        if not _IS_LINUX:
            return bytes(self.view(offset, size_bytes))
        self.check_range(offset, size_bytes)
        copied = os.pread(self._fd, size_bytes, self.offset + offset)
        if len(copied) < size_bytes:
            raise self._shrunk()
        return copied

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """Return these bytes as they lie in the client's memory, read-only; they may change. Raises as `check_range`."""
        self.check_range(offset, size_bytes)
        return self._mapped()[offset : offset + size_bytes].toreadonly()

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`. Raises as `check_range`, and INTERNAL when the system has no memory left for it."""
        self.check_range(offset, len(data))
        if not _IS_LINUX:
            self._mapped()[offset : offset + len(data)] = data
            return
        position, left = self.offset + offset, memoryview(data)
        try:
            while left:
                count = os.pwrite(self._fd, left, position)
                position, left = position + count, left[count:]
        except OSError as error:
            raise internal(f"can't write {len(data)} bytes to shared memory region '{self.name}': {error.strerror}") from None

    def _mapped(self) -> memoryview:
        if self._memory is None:
            raise internal(f"shared memory region '{self.name}' was used after its last user had released it")
        return self._memory

    def _shrunk(self) -> InferenceServerError:
        return invalid_argument(
            f"shared memory region '{self.name}' can't be used: its object '{self.key}' has shrunk since it was registered, it "
            f"must keep {self.offset + self.size_bytes} bytes"
        )


def _close(fd: int, _memory: memoryview | None) -> None:
    """Close the descriptor; the mapping goes with the last reference, which this call may hold."""
    os.close(fd)


def _check_alignment(name: str, offset: int) -> None:
    if offset % mmap.ALLOCATIONGRANULARITY:
        raise invalid_argument(
            f"failed to register shared memory region '{name}': offset {offset} must be a multiple of "
            f"{mmap.ALLOCATIONGRANULARITY}, the system's page size"
        )


def _map(fd: int, name: str, offset: int, size_bytes: int) -> memoryview:
    held_bytes = os.fstat(fd).st_size
    if not 1 <= size_bytes <= held_bytes - offset:
        raise invalid_argument(
            f"failed to register shared memory region '{name}': invalid args, byte_size {size_bytes} at offset {offset} must "
            f"be at least 1 and lie in the object's {held_bytes} bytes"
        )
    try:
        if sys.version_info >= (3, 13):
            return memoryview(mmap.mmap(fd, size_bytes, offset=offset, trackfd=False))
        return memoryview(mmap.mmap(fd, size_bytes, offset=offset))
    except (OSError, ValueError, OverflowError) as error:
        raise invalid_argument(f"failed to register shared memory region '{name}': {error}") from None
