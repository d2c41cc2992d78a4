"""Telling a client that has hung up from one that has only closed its own direction.

Both look the same until something is sent: a closed socket answers a byte with a reset. So a client that closed its
direction while it waits gets, after a short while, an interim `100 Continue`, which every HTTP/1.1 client must skip (RFC
9110 §15.2); the kernel then tells which of the two it was. A client that reads on has lost nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from naiad.frontends.http.connection import reply

PROBE_SECONDS = 0.15
LOOK_SECONDS = 0.05
NEXT_PROBE_SECONDS = 5.0

_TCP_CLOSE = 7


class HalfCloseWatch:
    """Watches one connection from the end of its input to the end of its output."""

    __slots__ = ("_loop", "_may_probe", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, may_probe: Callable[[], bool]) -> None:
        """`may_probe` tells whether the next bytes to be sent are the beginning of a response."""
        self._loop = loop
        self._transport = transport
        self._may_probe = may_probe
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
        # In the middle of a response nothing may be put in: its own bytes are the probe.
        if self._may_probe():
            self._transport.write(reply.CONTINUE)
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _TCP_CLOSE:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(NEXT_PROBE_SECONDS, self._probe)
