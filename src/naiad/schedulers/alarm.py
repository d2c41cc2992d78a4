"""One timer that is set again and again, at the cost of one comparison where it was set before.

Owns the timer. Doesn't own what it wakes for.
"""

from __future__ import annotations

from collections.abc import Callable

from naiad.clock import Clock, Timer


class Alarm:
    """Calls `callback` at or before the earliest time it was asked for.

    It may ring early (clocks round, and the one who asked may no longer need it), so the callback looks at the time and asks
    again. That way nothing is called off or set anew for each request.
    """

    __slots__ = ("_callback", "_clock", "_timer", "_wake_ns")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._timer: Timer | None = None
        self._wake_ns = 0

    def wake_at(self, wake_ns: int) -> None:
        """Ask for a call at `wake_ns`, at the next turn of the loop when that has passed."""
        if self._timer is not None:
            if self._wake_ns <= wake_ns:
                return
            self._timer.cancel()
        self._wake_ns = wake_ns
        self._timer = self._clock.call_later(max(wake_ns - self._clock.now_ns(), 0), self._ring)

    def cancel(self) -> None:
        """Call off whatever was asked for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._callback()
