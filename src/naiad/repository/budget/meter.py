"""How much memory loading takes, told by how the process has grown meanwhile.

Owns when such a measure is worth something: only when nothing else was loaded at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class GrowthMeter:
    """`read` returns how many bytes the process holds, None where that can't be known; `settle` comes before it, and gives back
    what is free. Loop thread only.
    """

    def __init__(self, read: Callable[[], int | None], settle: Callable[[], Awaitable[None]]) -> None:
        self._read = read
        self._settle = settle
        self._begun = 0
        self._running = 0

    async def measure(self, load: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Return what `load` returns, and by how many bytes the process has grown; 0 when that isn't known. Raises what `load`
        raises.
        """
        self._begun += 1
        self._running += 1
        number, was_first = self._begun, self._running == 1
        try:
            await self._settle()
            before = self._read()
            result = await load()
            await self._settle()
            after = self._read()
        finally:
            self._running -= 1
        is_alone = was_first and self._begun == number
        if not is_alone or before is None or after is None:
            return result, 0
        return result, max(after - before, 0)
