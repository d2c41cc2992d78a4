"""A listening socket and its HTTP connections: serve, drain, stop.

Owns the order of their end.
"""

from __future__ import annotations

import asyncio

from naiad.errors import InferenceServerError
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.sockets import BoundSocket

_CLOSE_LOOK_SECONDS = 0.02


class HttpListener:
    """Serves one site on one bound socket; None is none of its own, when another listener brings the connections."""

    def __init__(self, site: HttpSite, bound: BoundSocket | None) -> None:
        self._site = site
        self._bound = bound
        self._server: asyncio.AbstractServer | None = None

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._site.state.connections)

    async def start(self) -> None:
        """Accept connections from now on."""
        if self._bound is not None:
            self._server = await self._bound.serve(self._site.loop, self.new_connection)

    def new_connection(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        return HttpConnection(self._site)

    def begin_drain(self) -> None:
        """Nothing to do: each response of a draining server says `Connection: close`."""

    async def wait_answered(self, deadline: float) -> bool:
        """Wait until no client waits for the rest of an answer, but not longer than `deadline` (loop time); return whether so.

        The socket stays open meanwhile.
        """
        while any(isinstance(known, HttpConnection) and known.is_answering for known in self._site.state.connections):
            if self._site.loop.time() >= deadline:
                return False
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        return True

    def fail_requests(self, error: InferenceServerError) -> None:
        """End every request that is still being answered with `error`."""
        for connection in list(self._site.state.connections):
            if isinstance(connection, HttpConnection):
                connection.fail_active(error)

    async def stop(self, timeout_s: float) -> None:
        """Close the socket; connections end after the response that they are in, or are cut after `timeout_s` seconds."""
        if self._server is not None:
            self._server.close()
        if self._bound is not None:
            self._bound.close()
        deadline = self._site.loop.time() + timeout_s
        while self._site.state.connections and self._site.loop.time() < deadline:
            for connection in list(self._site.state.connections):
                connection.shutdown()
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for connection in list(self._site.state.connections):
            connection.transport.abort()
        self._site.close()
