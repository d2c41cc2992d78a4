"""A listening socket and its gRPC connections: serve, drain, stop.

Owns the socket and the order of its end.
"""

from __future__ import annotations

import asyncio
import socket

from naiad.errors import InferenceServerError, unavailable
from naiad.frontends.grpc.call import SHUTTING_DOWN
from naiad.frontends.grpc.connection.connection import GrpcConnection
from naiad.frontends.grpc.site import GrpcSite

_CLOSE_LOOK_SECONDS = 0.02


class GrpcListener:
    """Serves one site on one bound socket."""

    def __init__(self, site: GrpcSite, sock: socket.socket) -> None:
        self._site = site
        self._socket = sock
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        self._server = await self._site.loop.create_server(lambda: GrpcConnection(self._site), sock=self._socket)

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

    async def stop(self, timeout_s: float) -> None:
        """Close the socket and end the connections; those that don't end are cut off after `timeout_s` seconds."""
        if self._server is not None:
            self._server.close()
        self.fail_requests(unavailable(SHUTTING_DOWN))
        for connection in list(self._site.connections):
            connection.end()
        deadline = self._site.loop.time() + timeout_s
        while self._site.connections and self._site.loop.time() < deadline:  # noqa: ASYNC110 — looked at once, at the end
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for connection in list(self._site.connections):
            connection.abort()
        self._site.codec_thread.close()
