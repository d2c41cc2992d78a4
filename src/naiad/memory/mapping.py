"""`Mapping`: the other side's arena as it is seen here.

Owns which segments are mapped, and that nothing outside of them is ever read. Never allocates and never releases a block.
"""

from __future__ import annotations

import os

from naiad.memory.segment import map_segment


class Mapping:
    """The segments that the other side announced. Not thread-safe but for `view`.

    `writable`: views may be written to. A worker's are, since a model may change its inputs in place.
    """

    __slots__ = ("_segments", "_writable")

    def __init__(self, *, writable: bool) -> None:
        self._segments: dict[int, memoryview] = {}
        self._writable = writable

    @property
    def size_bytes(self) -> int:
        """How many bytes all mapped segments hold."""
        return sum(map(len, self._segments.values()))

    def add(self, segment_id: int, fd: int, size: int) -> None:
        """Map a segment and close `fd`, also on failure. Raises ValueError when it isn't what was announced, or can be cut."""
        try:
            if segment_id in self._segments:
                raise ValueError(f"segment {segment_id} was announced twice")
            memory = map_segment(fd, size, must_be_sealed=True)
        finally:
            os.close(fd)
        self._segments[segment_id] = memory if self._writable else memory.toreadonly()

    def remove(self, segment_id: int) -> memoryview:
        """Forget a segment and return its memory, which goes with the last view of it: for a large one that takes a while.

        Raises ValueError when there is none.
        """
        memory = self._segments.pop(segment_id, None)
        if memory is None:
            raise ValueError(f"segment {segment_id} was taken back, which isn't there")
        return memory

    def view(self, segment: int, offset: int, size: int) -> memoryview:
        """Return `size` bytes, format "B". Raises ValueError when they don't all lie in a mapped segment."""
        memory = self._segments.get(segment)
        if memory is None:
            raise ValueError(f"a block lies in segment {segment}, which isn't there")
        end = offset + size
        if not 0 <= offset <= end <= len(memory):
            raise ValueError(f"a block of {size} bytes at {offset} doesn't lie in segment {segment} of {len(memory)} bytes")
        return memory[offset:end]

    def close(self) -> None:
        """Forget all segments."""
        self._segments.clear()
