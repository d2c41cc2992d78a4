"""The blocks of a worker's arena as the server uses them: copied when small, held until sent when large.

Owns when the worker gets a block back. A client that reads slowly may hold blocks; beyond a limit its data is copied out.
"""

from __future__ import annotations

import asyncio

import numpy as np

from naiad.execution.process.codec.decode import Buffer
from naiad.execution.process.life.process import WorkerProcess
from naiad.memory.lease import Lease, Leases
from naiad.worker.frames import Frame, Kind, pack, pack_blocks

# To copy 32 kB takes less than to hold a block and to say later that it is free.
COPY_BYTES = 1 << 15
MAX_PINNED_BYTES = 256 << 20
_EAGER_BYTES = 1 << 18
_LAZY_SECONDS = 0.05


class WorkerOutputs:
    """See the module; one per worker. Arrays over a block may die on any thread."""

    def __init__(self, process: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
        self._process = process
        self._loop = loop
        self._leases = Leases(self._on_return)
        self._free: list[tuple[int, int]] = []
        self._free_bytes = 0
        self._is_flush_due = False
        self._timer: asyncio.TimerHandle | None = None

    def borrow(self, frame: Frame) -> tuple[Buffer, Lease | None]:
        """Return the data of a frame's block, and the lease to `settle` once arrays over it were made (None: it is a copy).

        Raises ValueError when the block isn't in the worker's memory.
        """
        if not frame.size:
            return b"", None
        view = self._process.mapping.view(frame.segment, frame.offset, frame.size)
        if frame.size <= COPY_BYTES:
            data = bytes(view)
            self._release(frame.segment, frame.offset, frame.size)
            return data, None
        if self._leases.pinned_bytes + frame.size > MAX_PINNED_BYTES:
            copy = np.frombuffer(view, np.uint8).copy()
            self._release(frame.segment, frame.offset, frame.size)
            return copy, None
        lease = self._leases.lend(frame.segment, frame.offset, view)
        return lease.array, lease

    def settle(self, frame: Frame, lease: Lease | None) -> None:
        """Say that all arrays over the block were made. The caller holds none of its own."""
        if lease is not None and lease.settle():
            self._release(frame.segment, frame.offset, frame.size)

    def release_frame(self) -> bytes:
        """Return the frame that gives back what is free now, to be sent before others; b"" when nothing is."""
        if not self._free:
            return b""
        frame = pack(Kind.RELEASE, 0, pack_blocks(self._free))
        self._free.clear()
        self._free_bytes = 0
        return frame

    def _release(self, segment: int, offset: int, size: int) -> None:
        """Give a block back with the next batch; without one, large blocks at the end of this turn, small ones a little later:
        a frame of its own would wake the worker for nothing.
        """
        self._free.append((segment, offset))
        self._free_bytes += size
        if self._free_bytes > _EAGER_BYTES and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        elif self._timer is None:
            self._timer = self._loop.call_later(_LAZY_SECONDS, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> None:
        self._is_flush_due = False
        frame = self.release_frame()
        if frame:
            self._process.send(frame)

    def _on_return(self) -> None:
        """An array died, maybe on another thread or in a garbage collection."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release_returned)

    def _release_returned(self) -> None:
        returned = self._leases.returned
        while returned:
            self._release(*returned.popleft(), COPY_BYTES)
