"""How long to wait before a worker is started again: longer after each death in a row.

Owns the delays. Whoever restarts workers waits, and says when one has proved good.
"""

from __future__ import annotations


class Backoff:
    """Delays that double from `initial_s` to `maximum_s`, in seconds."""

    __slots__ = ("_initial_s", "_maximum_s", "_next_s")

    def __init__(self, initial_s: float = 0.1, maximum_s: float = 30.0) -> None:
        self._initial_s = min(initial_s, maximum_s)
        self._maximum_s = maximum_s
        self._next_s = self._initial_s

    def next_delay_s(self) -> float:
        """Return how long to wait before the next start; the one after that waits twice as long."""
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, self._maximum_s)
        return delay_s

    def reset(self) -> None:
        """Begin with the first delay again: the worker has done its work."""
        self._next_s = self._initial_s
