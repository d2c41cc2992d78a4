"""A listening socket and its gRPC connections: serve, drain, stop.

Owns the order of their end, and ends the calls of gRPC-Web, whose connections are HTTP's.
"""

from __future__ import annotations

import asyncio

from naiad.errors import InferenceServerError, unavailable
from naiad.frontends.grpc.call import SHUTTING_DOWN
from naiad.frontends.grpc.connection.connection import GrpcConnection
from naiad.frontends.grpc.site import GrpcSite
from naiad.frontends.sockets import BoundSocket

_CLOSE_LOOK_SECONDS = 0.02


class GrpcListener:
    """Serves one site on one bound socket; None is none of its own, when another listener brings the connections."""

    def __init__(self, site: GrpcSite, bound: BoundSocket | None) -> None:
        self._site = site
        self._bound = bound
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        if self._bound is not None:
            self._server = await self._bound.serve(self._site.loop, self.new_connection)

    def new_connection(self) -> GrpcConnection:
        """Return the protocol of a new connection."""
        return GrpcConnection(self._site)

    def begin_drain(self) -> None:
        """Tell every client to begin no further calls on its connection; those that are open are answered."""
        for connection in list(self._site.connections):
            connection.drain()

    async def wait_answered(self, deadline: float) -> bool:
        """Wait until all answers are out, but not longer than `deadline` (loop time); return whether so.

        Calls that wait for their client, such as idle streams, aren't waited for.
        """
        while any(connection.is_answering for connection in self._site.connections):
            if self._site.loop.time() >= deadline:
                return False
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        return True

    def fail_requests(self, error: InferenceServerError) -> None:
        """End every call that is open with `error`."""
        for connection in list(self._site.connections):
            for stream in list(connection.streams.values()):
                stream.fail(error)
            connection.flush()
        for call in list(self._site.web_calls):
            call.fail(error)

    async def stop(self, timeout_s: float) -> None:
        """Close the socket and end the connections; those that don't end are cut off after `timeout_s` seconds."""
        if self._server is not None:
            self._server.close()
        if self._bound is not None:
            self._bound.close()
        self._site.has_stopped = True
        self.fail_requests(unavailable(SHUTTING_DOWN))
        for connection in list(self._site.connections):
            connection.end()
        deadline = self._site.loop.time() + timeout_s
        while self._site.connections and self._site.loop.time() < deadline:  # noqa: ASYNC110 — looked at once, at the end
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for connection in list(self._site.connections):
            connection.abort()
        self._site.codec_thread.close()
