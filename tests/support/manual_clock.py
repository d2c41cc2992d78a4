"""A clock that stands still until a test moves it: deadlines are tested exactly, in no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

_ENDLESS = 1_000_000


class ManualTimer:
    """See `naiad.clock.Timer`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """See `naiad.clock.Clock`. `now` is in nanoseconds; `timers_made` and `turns_run` count what was asked of the loop."""

    def __init__(self, now: int = 1_000_000_000) -> None:
        self.now = now
        self.timers_made = 0
        self.turns_run = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, ManualTimer]] = []

    def now_ns(self) -> int:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        self.timers_made += 1
        heappush(self._timers, (self.now + delay_ns, self.timers_made, timer))
        return timer

    def timer_count(self) -> int:
        """Return how many timers are due later and weren't called off."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def soon_count(self) -> int:
        """Return how many calls wait for the end of the turn."""
        return len(self._soon)

    def run_turn(self) -> None:
        """Run what is due at the end of this turn; what that adds belongs to the next one."""
        self.turns_run += 1
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def settle(self) -> None:
        """Run turns until nothing is left to do without time going by."""
        for _ in range(_ENDLESS):
            if not self._soon:
                return
            self.run_turn()
        raise AssertionError("the loop never comes to rest")

    def advance(self, delay_ns: int) -> None:
        """Let `delay_ns` go by, timer by timer; each turn settles before time goes on."""
        self.settle()
        end = self.now + delay_ns
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heappop(self._timers)
            if timer.callback is not None:
                self.now = max(self.now, when)
                timer.callback()
                self.settle()
        self.now = end

    def pass_time(self, delay_ns: int) -> None:
        """Let `delay_ns` go by within a callback, as work on the loop does: nothing fires meanwhile."""
        self.now += delay_ns

    def ring_early(self) -> None:
        """Fire every timer at once, whatever the time: real loops round."""
        timers, self._timers = self._timers, []
        for _, _, timer in timers:
            if timer.callback is not None:
                timer.callback()
        self.settle()
