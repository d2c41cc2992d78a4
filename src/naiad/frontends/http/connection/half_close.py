"""Telling a client that has hung up from one that has only closed its own direction.

Both look the same until something is sent: a closed socket answers a byte with a reset. So a client that closed its
direction while it waits gets, after a short while, bytes that it skips: before its response an interim `100 Continue`, which
every HTTP/1.1 client must skip (RFC 9110 §15.2); the kernel then tells which of the two it was. A client that reads on has
lost nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from naiad.frontends.http.connection import reply

PROBE_SECONDS = 0.15
LOOK_SECONDS = 0.05
NEXT_PROBE_SECONDS = 5.0

_TCP_CLOSE = 7


def probe_of_app(cycle: RequestResponseCycle) -> bytes:
    """Return what the client of a response of the app would skip at this moment: within chunks, a zero that leads the next
    one's size.
    """
    if not cycle.response_started:
        return reply.CONTINUE
    return b"0" if cycle.chunked_encoding else b""


class HalfCloseWatch:
    """Watches one connection from the end of its input to the end of its output."""

    __slots__ = ("_loop", "_probe_bytes", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, probe_bytes: Callable[[], bytes]) -> None:
        """`probe_bytes` gives what the client would skip at this moment, b"" when there is nothing."""
        self._loop = loop
        self._transport = transport
        self._probe_bytes = probe_bytes
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin: most responses are sent before the first probe."""
        self._timer = self._loop.call_later(PROBE_SECONDS, self._probe)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _probe(self) -> None:
        if self._transport.is_closing():
            return
        # Where nothing may be put into a response, its own bytes are the probe.
        if probe := self._probe_bytes():
            self._transport.write(probe)
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            # There the probe itself fails when nobody is left to read it.
            self._timer = self._loop.call_later(NEXT_PROBE_SECONDS, self._probe)
            return
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _TCP_CLOSE:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(NEXT_PROBE_SECONDS, self._probe)
