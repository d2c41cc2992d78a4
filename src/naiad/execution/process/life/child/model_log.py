"""What a worker says, as lines of the server's log.

Owns their form, and how many of them the log takes: a model that writes without end must hold up neither the loop nor the disk.
What is left out is counted and said. The log's formatter makes control characters visible.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

MAX_LINE = 8192
"""A longer line is cut into several, in characters or bytes."""

_BURST_LINES = 1000
_LINES_PER_SECOND = 500
# Formatting and writing one takes some 20 µs of the loop.
_LINES_PER_TURN = 40
_REPORT_SECONDS = 1.0

_log = logging.getLogger("naiad.model")


class LineBudget:
    """How many lines may be written: `burst` at once, and `per_second` lines more each second."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_second")

    def __init__(self, burst: int, per_second: float, now_s: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = float(burst)
        self._at_s = now_s

    def take(self, count: int, now_s: float) -> int:
        """Return how many of `count` lines may be written now."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        taken = min(count, int(self._left))
        self._left -= taken
        return taken


class ModelLog:
    """The log of one worker; `prefix` stands before every line. Loop thread only."""

    def __init__(self, prefix: str, loop: asyncio.AbstractEventLoop) -> None:
        self._prefix = prefix
        self._loop = loop
        self._budget = LineBudget(_BURST_LINES, _LINES_PER_SECOND, loop.time())
        self._waiting: deque[tuple[int, str]] = deque()
        self._dropped_lines = self._dropped_bytes = 0
        self._report: asyncio.TimerHandle | None = None
        self._written: asyncio.Future[None] | None = None

    def write(self, level: int, text: str) -> None:
        """Write a text of one line or several at one of the standard library's levels."""
        lines = [piece for line in text.rstrip("\n").split("\n") for piece in pieces(line)]
        self._take(level, lines, sum(map(len, lines)))

    def write_lines(self, level: int, lines: Sequence[bytes]) -> None:
        """Write lines as they came from a pipe: UTF-8, what isn't becomes U+FFFD."""
        self._take(level, lines, 0)

    async def wait_written(self) -> None:
        """Return when every line that was taken is in the log, and how many weren't is too."""
        if self._waiting:
            self._written = self._written or self._loop.create_future()
            await asyncio.shield(self._written)
        self._say_dropped()

    def _take(self, level: int, lines: Sequence[str] | Sequence[bytes], size: int) -> None:
        if not _log.isEnabledFor(level):
            return
        allowed = self._budget.take(len(lines), self._loop.time())
        if allowed < len(lines):
            self._drop(lines[allowed:])
        if not allowed:
            return
        is_idle = not self._waiting
        self._waiting.extend((level, as_text(line)) for line in lines[:allowed])
        if is_idle:
            self._emit()

    def _emit(self) -> None:
        """Write some of what waits; the rest has its turn after the sockets'."""
        waiting = self._waiting
        for _ in range(min(_LINES_PER_TURN, len(waiting))):
            level, line = waiting.popleft()
            _log.log(level, "%s%s", self._prefix, line)
        if waiting:
            self._loop.call_soon(self._emit)
        elif self._written is not None:
            self._written.set_result(None)
            self._written = None

    def _drop(self, lines: Sequence[str] | Sequence[bytes]) -> None:
        self._dropped_lines += len(lines)
        self._dropped_bytes += sum(map(len, lines)) + len(lines)
        if self._report is None:
            self._report = self._loop.call_later(_REPORT_SECONDS, self._say_dropped)

    def _say_dropped(self) -> None:
        if self._report is not None:
            self._report.cancel()
            self._report = None
        if self._dropped_lines:
            _log.warning(
                "%s%d more lines (%d bytes) were left out: the log takes %d lines at once and %d a second from a worker",
                self._prefix,
                self._dropped_lines,
                self._dropped_bytes,
                _BURST_LINES,
                _LINES_PER_SECOND,
            )
            self._dropped_lines = self._dropped_bytes = 0


def pieces(line: str) -> list[str]:
    """Return a line, cut where it is longer than a line of the log may be."""
    if len(line) <= MAX_LINE:
        return [line]
    return [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)]


def as_text(line: str | bytes) -> str:
    """Return a line as text; bytes that aren't UTF-8 become U+FFFD."""
    return line.decode("utf-8", "replace") if isinstance(line, bytes) else line
