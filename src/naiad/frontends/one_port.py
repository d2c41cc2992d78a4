"""HTTP/1.1 and gRPC on one port: the first bytes of a connection tell which of the two its client speaks.

Owns a connection until that is known. Doesn't own what follows: the connection is then one of its own listener's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from naiad.errors import InferenceServerError
from naiad.frontends.grpc.listener import GrpcListener
from naiad.frontends.http.listener import HttpListener
from naiad.frontends.sockets import BoundSocket

# HTTP/2 with prior knowledge begins so (RFC 9113 §3.4), and no request of HTTP/1.1 does.
_PREFACE = b"PRI * HTTP/2.0\r\n"


class OnePortListener:
    """Both listeners behind one socket. `silence_s` is how long a client may take until it is known what it speaks, and `most`
    how many such clients there may be.
    """

    def __init__(self, http: HttpListener, grpc: GrpcListener, bound: BoundSocket, silence_s: float, most: int) -> None:
        self._http = http
        self._grpc = grpc
        self._bound = bound
        self._silence_s = silence_s
        self._most = most
        self._server: asyncio.AbstractServer | None = None
        self._unknown: set[_Unknown] = set()

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await self._bound.serve(loop, lambda: _Unknown(self._unknown, self._most, self._choose, self._silence_s))

    def begin_drain(self) -> None:
        """See both."""
        self._http.begin_drain()
        self._grpc.begin_drain()

    async def wait_answered(self, deadline: float) -> bool:
        """See both."""
        return await self._http.wait_answered(deadline) and await self._grpc.wait_answered(deadline)

    def fail_requests(self, error: InferenceServerError) -> None:
        """See both."""
        self._http.fail_requests(error)
        self._grpc.fail_requests(error)

    async def stop(self, timeout_s: float) -> None:
        """Close the socket and end the connections."""
        if self._server is not None:
            self._server.close()
        self._bound.close()
        for unknown in list(self._unknown):
            unknown.close()
        await asyncio.gather(self._http.stop(timeout_s), self._grpc.stop(timeout_s))

    def _choose(self, is_http2: bool) -> asyncio.Protocol:
        return self._grpc.new_connection() if is_http2 else self._http.new_connection()


class _Unknown(asyncio.Protocol):
    """A connection before its first bytes are here."""

    def __init__(self, others: set[_Unknown], most: int, choose: Callable[[bool], asyncio.Protocol], silence_s: float) -> None:
        self._others = others
        self._most = most
        self._choose = choose
        self._silence_s = silence_s
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self.close)
        if len(self._others) >= self._most:
            self._transport.abort()
        self._others.add(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`: once it is known what is spoken, the protocol of it gets all that came."""
        self._received += data
        is_http2 = self._received.startswith(_PREFACE)
        if not is_http2 and _PREFACE.startswith(self._received):
            return
        self._forget()
        protocol = self._choose(is_http2)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if not self._transport.is_closing():
            protocol.data_received(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()

    def close(self) -> None:
        """End the connection: its client is silent, or the server stops."""
        self._transport.close()

    def _forget(self) -> None:
        self._timer.cancel()
        self._others.discard(self)
