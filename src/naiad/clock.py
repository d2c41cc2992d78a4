"""Time as a value that is passed in, so that deadlines are tested without sleeping.

Owns the `Clock` protocol and the one that runs on an event loop. Policies get `now_ns` as an argument and never a clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later and can still be called off."""

    def cancel(self) -> None:
        """Call it off; a second call does nothing."""


class Clock(Protocol):
    """The time and the timers of one event loop; used on that loop's thread only."""

    def now_ns(self) -> int:
        """Return a monotonic time in nanoseconds."""

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` once on the loop thread when `delay_ns` nanoseconds have passed."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` at the end of this turn of the loop."""


class LoopClock:
    """The clock of a running event loop."""

    __slots__ = ("_loop", "now_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now_ns = time.monotonic_ns

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        """See `Clock.call_later`. A timer never fires early: loops round to a millisecond, so the callback checks the time."""
        return self._loop.call_later(max(delay_ns, 0) / 1e9, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """See `Clock.call_soon`."""
        self._loop.call_soon(callback)
