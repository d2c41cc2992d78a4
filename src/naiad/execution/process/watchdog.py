"""The limit on how long one call of `execute` may take.

Owns one timer per instance, however many batches it runs. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from naiad.execution.process.context import WorkerLimits
from naiad.request.request import InferRequest

OVERRIDE_PARAMETER = "execution_timeout_ms"


class Watchdog:
    """Calls `on_hang` when the batch that was started last has run for too long. Without `has_limit` it needn't be told."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: WorkerLimits, on_hang: Callable[[float], None]) -> None:
        self._loop = loop
        self._limits = limits
        self._on_hang = on_hang
        self._limit_s = 0.0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.has_limit = limits.execution_timeout_s > 0 or limits.allows_override

    def start(self, requests: Sequence[InferRequest]) -> None:
        """A batch is running from now on, in place of the one before."""
        limit_s = self._limit_of(requests) if self.has_limit else 0.0
        if not limit_s:
            self._deadline = 0.0
            return
        self._limit_s = limit_s
        self._deadline = self._loop.time() + limit_s
        if self._timer is None or self._timer.when() > self._deadline:
            self._arm()

    def stop(self) -> None:
        """Nothing is running now."""
        self._deadline = 0.0

    def close(self) -> None:
        """Take the timer back."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._deadline:
            return
        if self._loop.time() >= self._deadline:
            self._deadline = 0.0
            self._on_hang(self._limit_s)
        else:
            self._arm()

    def _limit_of(self, requests: Sequence[InferRequest]) -> float:
        """Return the limit of a batch in seconds, 0 for none: the model's, or the shortest that its requests ask for."""
        limit_s = self._limits.execution_timeout_s
        if self._limits.allows_override:
            for request in requests:
                wished = request.parameters.get(OVERRIDE_PARAMETER)
                if isinstance(wished, int) and not isinstance(wished, bool) and wished > 0:
                    limit_s = min(limit_s or wished / 1000, wished / 1000)
        return limit_s
