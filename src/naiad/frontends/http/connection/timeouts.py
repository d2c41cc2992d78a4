"""The time-outs of one connection: slow heads, stalled bodies, idle keep-alive.

Owns one lazy timer: it looks at the connection's state when it fires and is not touched for each request. A time-out therefore
strikes up to the shortest of them late, never early.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from naiad.frontends.http.options import HttpOptions

SLOWEST_BYTES_PER_SECOND = 1024


class Watched(Protocol):
    """What is asked of a connection when the timer fires."""

    @property
    def is_in_head(self) -> bool:
        """Whether a head has begun and isn't complete."""

    @property
    def is_busy(self) -> bool:
        """Whether a whole request waits for its answer."""

    @property
    def body_received(self) -> int:
        """A number that grows while a body arrives."""

    def close_idle(self) -> None:
        """Close an idle connection."""

    def give_up_message(self, text: str) -> None:
        """Refuse the request that is arriving."""


class MessageClock:
    """See the module. `last_data` is the loop time at which bytes were last received."""

    __slots__ = ("_began", "_connection", "_is_arriving", "_last_progress", "_loop", "_options", "_seen", "_timer", "last_data")

    def __init__(self, loop: asyncio.AbstractEventLoop, options: HttpOptions, connection: Watched) -> None:
        self._loop = loop
        self._options = options
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self._is_arriving = False
        self._began = self._last_progress = self.last_data = loop.time()
        self._seen = 0

    def start(self) -> None:
        """Begin to watch."""
        options = self._options
        period_s = min(options.header_timeout_s, options.body_timeout_s, options.keep_alive_timeout_s)
        self._timer = self._loop.call_later(period_s, self._check)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def begin_message(self) -> None:
        """A request's first byte is here."""
        self._is_arriving = True
        self._began = self._last_progress = self.last_data
        self._seen = -1

    def end_message(self) -> None:
        """A request is complete, or is not waited for any more."""
        self._is_arriving = False

    def _check(self) -> None:
        now = self._loop.time()
        if self._is_arriving:
            text = self._head_fault(now) if self._connection.is_in_head else self._body_fault(now)
            if text:
                self._connection.give_up_message(text)
        elif not self._connection.is_busy and now - self.last_data >= self._options.keep_alive_timeout_s:
            self._connection.close_idle()
        self.start()

    def _head_fault(self, now: float) -> str:
        limit_s = self._options.header_timeout_s
        if now - self._began < limit_s:
            return ""
        return f"the request's head was not complete after {limit_s:g} s (--http-header-timeout-secs)"

    def _body_fault(self, now: float) -> str:
        limit_s = self._options.body_timeout_s
        received = self._connection.body_received
        if received != self._seen:
            self._seen = received
            self._last_progress = now
        elapsed_s = now - self._began
        is_stalled = now - self._last_progress >= limit_s
        is_crawling = elapsed_s >= 2 * limit_s and received < SLOWEST_BYTES_PER_SECOND * (elapsed_s - limit_s)
        if is_stalled or is_crawling:
            return f"the request's body was given up after {elapsed_s:.0f} s without progress (--http-body-timeout-secs)"
        return ""
