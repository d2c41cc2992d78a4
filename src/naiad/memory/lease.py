"""`Leases`: blocks of the other side that arrays here still use.

Owns the knowledge of when the last array over a block has died. Who is to be told, and how, is the owner's part.

Every array made from the one of a lease keeps it alive: slices, `view`, `reshape`, arrays over a memoryview of it, and whoever
took it by DLPack or `__array_interface__` and keeps the array, as he must. What steps around arrays isn't seen: a bare address,
or the memoryview that is the array's own `base`.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import frombuffer  # a model may put its own in the place of `np.frombuffer`

Array = np.ndarray[Any, Any]

_UINT8 = np.dtype(np.uint8)


class Leases:
    """The leases of one mapping. Any thread may call anything here; there are no locks.

    `returned` gets (segment, offset) of each block that was still in use when its lease was settled and now isn't; the owner
    takes them out and tells the other side. `on_return` is called after each. It runs where the last array died, on any thread
    and maybe within a garbage collection: it must take no lock, not block and not raise.
    """

    __slots__ = ("_kept", "_on_return", "returned")

    def __init__(self, on_return: Callable[[], None] | None = None) -> None:
        self.returned: deque[tuple[int, int]] = deque()
        self._kept: dict[int, _Kept] = {}
        self._on_return = on_return

    @property
    def count(self) -> int:
        """How many blocks are in use beyond the settling of their lease."""
        return len(self._kept)

    @property
    def pinned_bytes(self) -> int:
        """How many bytes these blocks have; adds them up."""
        return sum([kept.size for kept in list(self._kept.values())])

    def lend(self, segment: int, offset: int, view: memoryview) -> Lease:
        """Return the lease of the block `view`, which may be empty. It must be settled."""
        return Lease(self, segment, offset, view)

    def _keep(self, array: Array, segment: int, offset: int) -> None:
        kept = _Kept(array, self._end)
        kept.segment, kept.offset, kept.size = segment, offset, array.nbytes
        self._kept[id(kept)] = kept

    def _end(self, kept: _Kept) -> None:
        del self._kept[id(kept)]
        self.returned.append((kept.segment, kept.offset))
        if self._on_return is not None:
            self._on_return()


class Lease:
    """One block in use. `array` is a flat uint8 array over it, gone once the lease is settled; it may be written to when the
    block's view may.
    """

    __slots__ = ("_leases", "_offset", "_segment", "array")

    def __init__(self, leases: Leases, segment: int, offset: int, view: memoryview) -> None:
        self.array: Array = frombuffer(view, _UINT8)
        self._leases = leases
        self._segment = segment
        self._offset = offset

    def settle(self) -> bool:
        """Let `array` go, and return True when nothing else uses the block: it is free at once, and won't be in `returned`.

        False: something does, and when it no longer does, the block comes to `returned`; which may be before this returns. Call
        it when the work on the block is done, holding no array yourself. A second call returns False.
        """
        try:
            alone = weakref.ref(self.array)
        except AttributeError:
            return False
        del self.array
        array = alone()
        if array is None:
            return True
        self._leases._keep(array, self._segment, self._offset)
        return False


class _Kept(weakref.ref[Array]):
    """Tells `Leases` when an array dies. An array is no part of cycles that Python collects early, so this is its true end."""

    __slots__ = ("offset", "segment", "size")

    segment: int
    offset: int
    size: int
