"""Who still needs a model that may have left: requests of ensembles hold the models of their steps.

Owns the count, and the wait until it is 0. Event loop thread only.
"""

from __future__ import annotations

import asyncio


class Holds:
    """See the module."""

    __slots__ = ("_count", "_is_free")

    def __init__(self) -> None:
        self._count = 0
        self._is_free: asyncio.Event | None = None

    def take(self) -> None:
        """Hold the model once more."""
        self._count += 1

    def let_go(self) -> None:
        """Be done with it once."""
        self._count -= 1
        if not self._count and self._is_free is not None:
            self._is_free.set()

    async def wait_free(self) -> None:
        """Return when nobody holds the model; nobody takes it any more by then."""
        while self._count:
            self._is_free = asyncio.Event()
            await self._is_free.wait()
