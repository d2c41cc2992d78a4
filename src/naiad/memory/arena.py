"""`Arena`: blocks of shared memory for one side of a worker's connection, in segments that come and go.

Owns when a segment is made, told to the other side and given back. Which bytes of a segment are free is `ranges`' part, how the
other side reads is `mapping`'s, and who still uses a block is its owner's to know.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from naiad.memory.ranges import ALIGNMENT, Ranges
from naiad.memory.segment import create_segment, map_segment

MEBIBYTE = 1 << 20

# A segment for small blocks grows with the arena up to here, so that a thousand blocks don't make a thousand segments.
_MAX_GROWTH_BYTES = 64 * MEBIBYTE
# So much of empty segments an idle arena keeps.
_RESERVE_BYTES = 8 * MEBIBYTE


class Block(NamedTuple):
    """A place in shared memory: `size` bytes at `offset` of segment `segment`."""

    segment: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ArenaLimits:
    """How large an arena is: the first segment, the least of a further one, and all together.

    Nothing is taken before the first block, and of a segment only the pages that were touched. `how_to_raise` is a sentence for
    whoever reads that the arena is full: it says which option raises `limit_bytes`.
    """

    first_bytes: int = MEBIBYTE
    growth_bytes: int = MEBIBYTE
    limit_bytes: int = 4096 * MEBIBYTE
    how_to_raise: str = ""


class ArenaFull(Exception):  # noqa: N818 — a state that passes, not a fault
    """There is no room for a block of `needed` bytes now: `used` of `limit` are in use. `is_hopeless`: there never can be."""

    def __init__(self, needed: int, used: int, limits: ArenaLimits) -> None:
        limit = limits.limit_bytes
        text = f"no shared memory for {needed} bytes: {used} of at most {limit} bytes are in use"
        super().__init__(f"{text}. {limits.how_to_raise}" if limits.how_to_raise else text)
        self.needed = needed
        self.used = used
        self.limit = limit
        self.is_hopeless = needed > limit


class _Segment:
    """A segment of the arena. `was_used`: a block was made in it since the last `trim`."""

    __slots__ = ("memory", "number", "ranges", "was_used")

    def __init__(self, number: int, memory: memoryview) -> None:
        self.number = number
        self.memory = memory
        self.ranges = Ranges(len(memory))
        self.was_used = True


class Arena:
    """Makes blocks and takes them back. Not thread-safe: the owner serialises.

    `announce(segment, fd, size)` is called within `allocate`, before the first block of a new segment is returned: the other
    side must have been sent the descriptor when it returns, which then is closed. `retire(segment)` is called when a segment
    was given back: the other side may forget it, and its number, counted from 1, doesn't come again.
    """

    def __init__(self, limits: ArenaLimits, announce: Callable[[int, int, int], None], retire: Callable[[int], None]) -> None:
        self._limits = limits
        self._announce = announce
        self._retire = retire
        self._segments: dict[int, _Segment] = {}
        self._last_segment = 0
        self._used_bytes = 0
        self._size_bytes = 0

    @property
    def used_bytes(self) -> int:
        """How many bytes are in blocks, each rounded up to the alignment."""
        return self._used_bytes

    @property
    def size_bytes(self) -> int:
        """How many bytes all segments hold."""
        return self._size_bytes

    @property
    def block_count(self) -> int:
        """How many blocks are in use."""
        return sum(len(segment.ranges.taken) for segment in self._segments.values())

    def allocate(self, size: int) -> Block:
        """Return a block of `size` bytes (0 too), which begins at a multiple of 64; its content is arbitrary.

        Raises ArenaFull when the limit leaves no room; OSError when the system has no memory or descriptor left, and whatever
        `announce` raises: the arena is as it was then.
        """
        rounded = -(-size // ALIGNMENT) * ALIGNMENT or ALIGNMENT
        for segment in self._segments.values():
            offset = segment.ranges.take(rounded)
            if offset >= 0:
                break
        else:
            segment = self._grow(rounded)
            offset = segment.ranges.take(rounded)
        segment.was_used = True
        self._used_bytes += rounded
        return Block(segment.number, offset, size)

    def view(self, block: Block) -> memoryview:
        """Return the bytes of a block in use: writable, format "B". Raises ValueError for any other."""
        number, offset, size = block
        segment = self._segments.get(number)
        if segment is None or not 0 <= size <= segment.ranges.taken.get(offset, -1):
            raise ValueError(f"no block of {size} bytes is in use at {offset} of segment {number}")
        return segment.memory[offset : offset + size]

    def release(self, segment: int, offset: int) -> None:
        """Take a block back. Raises ValueError when there is none: who released it is broken."""
        owner = self._segments.get(segment)
        if owner is None:
            raise ValueError(f"a block of segment {segment} was released, which isn't there")
        self._used_bytes -= owner.ranges.give_back(offset)

    def trim(self, *, keep_used: bool = False) -> list[memoryview]:
        """Give empty segments back but for a small reserve: the oldest ones, up to 8 MiB or one first segment.

        Returns their memory, which goes when the caller lets go of it: for a large segment that takes a while.

        Call it when nothing was asked of the arena for a while; or now and then with `keep_used`, which spares segments that a
        block was made in since the last call.
        """
        given_back: list[memoryview] = []
        reserve = max(_RESERVE_BYTES, self._limits.first_bytes)
        for number, segment in list(self._segments.items()):
            was_used, segment.was_used = segment.was_used, False
            size = len(segment.memory)
            if size <= reserve:
                reserve -= size
            elif not segment.ranges.taken and not (keep_used and was_used):
                given_back.append(segment.memory)
                self._give_back(number)
        return given_back

    def close(self) -> None:
        """Let go of all memory; views that live keep theirs. The other side isn't told. No block can be made any more."""
        self._segments.clear()
        self._limits = ArenaLimits(limit_bytes=0, how_to_raise="The arena is closed.")
        self._used_bytes = self._size_bytes = 0

    def _grow(self, rounded: int) -> _Segment:
        """Return a new segment with room for `rounded` bytes."""
        least = -(-rounded // mmap.PAGESIZE) * mmap.PAGESIZE
        room = self._room()
        if least > room:
            self._give_back_empty()
            room = self._room()
            if least > room:
                raise ArenaFull(rounded, self._used_bytes, self._limits)
        size = min(self._wanted(least), room)
        number = self._last_segment + 1
        fd = create_segment(size)
        try:
            segment = _Segment(number, map_segment(fd, size, must_be_sealed=False))
            self._announce(number, fd, size)
        finally:
            os.close(fd)
        self._last_segment = number
        self._segments[number] = segment
        self._size_bytes += size
        return segment

    def _wanted(self, least: int) -> int:
        """Return how large a segment for `least` bytes should be: room for some more such blocks, and not too many segments."""
        smallest = self._limits.growth_bytes if self._segments else self._limits.first_bytes
        shared = min(max(4 * least, self._size_bytes // 2), _MAX_GROWTH_BYTES)
        return -(-max(least, smallest, shared) // mmap.PAGESIZE) * mmap.PAGESIZE

    def _room(self) -> int:
        return (self._limits.limit_bytes - self._size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE

    def _give_back_empty(self) -> None:
        for number, segment in list(self._segments.items()):
            if not segment.ranges.taken:
                self._give_back(number)

    def _give_back(self, number: int) -> None:
        self._size_bytes -= len(self._segments.pop(number).memory)
        self._retire(number)
