"""A loop that runs what is due when it is told to: timers without waiting."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class FakeTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """`now` is its time in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._soon.append(lambda: callback(*arguments))

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> FakeTimer:
        timer = FakeTimer(self.now + delay, lambda: callback(*arguments))
        self._count += 1
        heapq.heappush(self._timers, (timer.when, self._count, timer))
        return timer

    def turn(self) -> None:
        """Run what waits for the next turn, and what that puts there."""
        while self._soon:
            self.turn_once()

    def turn_once(self) -> None:
        """Run what waits for the next turn only."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end = self.now + seconds
        self.turn()
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.is_cancelled:
                timer.callback()
            self.turn()
        self.now = end

    @property
    def waiting_count(self) -> int:
        """How many callbacks wait for the next turn."""
        return len(self._soon)

    @property
    def open_timers(self) -> int:
        return sum(not timer.is_cancelled for _, _, timer in self._timers)
