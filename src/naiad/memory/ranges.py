"""`Ranges`: which bytes of a segment are taken.

Owns the allocator within one segment: numbers only, no memory. Blocks made and given back in order cost a few comparisons; for
others there is a list of gaps.
"""

from __future__ import annotations

from bisect import bisect_left

ALIGNMENT = 64
"""Every block begins at a multiple of it: a cache line, and enough for any vector instruction."""


class Ranges:
    """Ranges of `size` bytes. `taken` maps the offset of each taken range to its length, which is never 0; for reading only.

    Above `_top` everything is free; below, what isn't taken is in `_gaps`, length by offset, no two of them adjacent and none
    that ends at `_top`. `_starts` holds their offsets in order. No gap is larger than `_largest`.
    """

    __slots__ = ("_gaps", "_largest", "_size", "_starts", "_top", "taken")

    def __init__(self, size: int) -> None:
        self.taken: dict[int, int] = {}
        self._size = size
        self._top = 0
        self._gaps: dict[int, int] = {}
        self._starts: list[int] = []
        self._largest = 0

    def take(self, length: int) -> int:
        """Return the offset of `length` free bytes, now taken, or -1 when there are none; the lowest that fit."""
        if length <= self._largest:
            offset = self._take_gap(length)
            if offset >= 0:
                return offset
        offset = self._top
        if length > self._size - offset:
            return -1
        self._top = offset + length
        self.taken[offset] = length
        return offset

    def give_back(self, offset: int) -> int:
        """Free the range at `offset`; return its length. Raises ValueError when none begins there."""
        length = self.taken.pop(offset, 0)
        if not length:
            raise ValueError(f"a block at {offset} was released, but none is in use there")
        if not self.taken:
            self._top = self._largest = 0
            self._gaps.clear()
            self._starts.clear()
        elif offset + length == self._top:
            self._lower_top(offset)
        else:
            self._add_gap(offset, length)
        return length

    def _take_gap(self, length: int) -> int:
        largest = 0
        for index, start in enumerate(self._starts):
            gap = self._gaps[start]
            if gap >= length:
                del self._gaps[start]
                if gap > length:
                    self._starts[index] = start + length
                    self._gaps[start + length] = gap - length
                else:
                    del self._starts[index]
                self.taken[start] = length
                return start
            largest = max(largest, gap)
        self._largest = largest
        return -1

    def _lower_top(self, offset: int) -> None:
        self._top = offset
        if self._starts and self._starts[-1] + self._gaps[self._starts[-1]] == offset:
            self._top = self._starts.pop()
            del self._gaps[self._top]

    def _add_gap(self, offset: int, length: int) -> None:
        """Add a gap, joined with those that touch it."""
        index = bisect_left(self._starts, offset)
        if index < len(self._starts) and self._starts[index] == offset + length:
            length += self._gaps.pop(self._starts.pop(index))
        before = self._starts[index - 1] if index else -1
        if index and before + self._gaps[before] == offset:
            offset, length = before, length + self._gaps[before]
        else:
            self._starts.insert(index, offset)
        self._gaps[offset] = length
        self._largest = max(self._largest, length)
