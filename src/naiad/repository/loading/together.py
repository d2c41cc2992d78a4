"""Work that is done once for all who ask for it meanwhile.

Owns who waits for which round of it. Event loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Together:
    """Runs `work` in rounds, one at a time: who asks while one goes on waits for the next, together with all others who do."""

    def __init__(self, work: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._round: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Return when a round has ended that began after this call. Raises what `work` raises."""
        if self._next is None:
            self._next = self._loop.create_task(self._begin())
        await asyncio.shield(self._next)

    async def _begin(self) -> None:
        if self._round is not None:
            await asyncio.wait((self._round,))
        self._round, self._next = self._next, None
        await self._work()
