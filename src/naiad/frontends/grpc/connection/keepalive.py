"""Whether a quiet client is still there, whether it pings too much, and how old its connection may become.

Owns these three rules of gRPC servers and their timers. Loop thread only.
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from naiad.frontends.grpc.connection.engine import ENHANCE_YOUR_CALM, NO_ERROR, Http2Engine
from naiad.frontends.grpc.options import KeepAlive

# How often an idle client may ping that isn't allowed to at all.
_IDLE_PING_INTERVAL_SECONDS = 7200.0
# Connections that were made together shouldn't all end together.
_AGE_SPREAD = 0.1
# A client has so long to say that it speaks HTTP/2: the preface and its settings.
PREFACE_TIMEOUT_SECONDS = 20.0


class Kept(Protocol):
    """The connection that is looked after."""

    engine: Http2Engine
    streams: dict[int, object]

    def flush(self) -> None:
        """Write what the engine has."""

    def drain(self) -> None:
        """Take no further calls and end with the last one."""

    def end(self, error_code: int, text: str) -> None:
        """End at once."""

    def abort(self) -> None:
        """Cut off."""


class Caretaker:
    """Looks after one connection."""

    __slots__ = ("_connection", "_last_ping_at", "_loop", "_options", "_received_at", "_strikes", "_timers")

    def __init__(self, connection: object, options: KeepAlive, loop: asyncio.AbstractEventLoop) -> None:
        self._connection: Kept = connection  # type: ignore[assignment]
        self._options = options
        self._loop = loop
        self._received_at = -1.0
        self._last_ping_at = -1e9
        self._strikes = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begin: the client has connected."""
        options = self._options
        self._timers["preface"] = self._loop.call_later(PREFACE_TIMEOUT_SECONDS, self._connection.abort)
        self._timers["alive"] = self._loop.call_later(options.time_s, self._check_alive)
        if options.max_age_s:
            age_s = options.max_age_s * random.uniform(1 - _AGE_SPREAD, 1 + _AGE_SPREAD)  # noqa: S311 — no secret
            self._timers["age"] = self._loop.call_later(age_s, self._retire)

    def stop(self) -> None:
        """The connection is gone."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def has_received(self) -> None:
        """Something came from the client."""
        self._received_at = self._loop.time()

    def has_sent(self) -> None:
        """Something of a call went to the client: pings between answers are no abuse."""
        self._last_ping_at = -1e9
        self._strikes = 0

    def has_introduced_itself(self) -> None:
        """The client speaks HTTP/2."""
        preface = self._timers.pop("preface", None)
        if preface is not None:
            preface.cancel()

    def has_been_pinged(self) -> None:
        """Count a ping of the client; too many end the connection."""
        options, now = self._options, self._loop.time()
        is_idle = not self._connection.streams and not options.permits_without_calls
        interval_s = _IDLE_PING_INTERVAL_SECONDS if is_idle else options.min_ping_interval_s
        is_too_soon = now - self._last_ping_at < interval_s
        self._last_ping_at = now
        if not is_too_soon:
            return
        self._strikes += 1
        if 0 < options.max_ping_strikes < self._strikes:
            self._loop.call_soon(self._connection.end, ENHANCE_YOUR_CALM, "too_many_pings")

    def _check_alive(self) -> None:
        """Ping a client of which nothing came for the whole time."""
        options = self._options
        quiet_s = self._loop.time() - max(self._received_at, 0.0)
        if self._received_at >= 0 and quiet_s < options.time_s:
            self._timers["alive"] = self._loop.call_later(options.time_s - quiet_s, self._check_alive)
            return
        if self._connection.streams or options.permits_without_calls:
            self._connection.engine.ping()
            self._connection.flush()
            self._timers["alive"] = self._loop.call_later(options.timeout_s, self._check_answered, self._loop.time())
        else:
            self._timers["alive"] = self._loop.call_later(options.time_s, self._check_alive)

    def _check_answered(self, pinged_at: float) -> None:
        if self._received_at < pinged_at:
            self._connection.abort()
        else:
            self._check_alive()

    def _retire(self) -> None:
        self._connection.drain()
        if self._options.max_age_grace_s:
            self._timers["age"] = self._loop.call_later(
                self._options.max_age_grace_s, self._connection.end, NO_ERROR, "max_age"
            )
