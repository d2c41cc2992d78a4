"""A listening socket and its connections: bind, serve, stop.

Owns the socket. Ports are bound before models are loaded, so that a taken port is a clear line at start and not a surprise
later.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, unavailable
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite

BACKLOG = 1024
_CLOSE_LOOK_SECONDS = 0.02


def bind(host: str, port: int, reuse_port: bool = False) -> socket.socket:
    """Return a socket bound to `host` (a name or an IPv4 or IPv6 address) and `port` (0: the system chooses).

    Raises UNAVAILABLE when the port is taken and INVALID_ARGUMENT for an address that isn't this machine's.
    """
    if host.startswith("unix:"):
        raise invalid_argument(f"'{host}' can't be listened at: Unix sockets aren't built yet, give a host's name or address")
    host = host.removeprefix("ipv6:").strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise invalid_argument(f"'{host}' is not an address to listen at: {error}") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _bind_error(host, port, error) from error
    sock.setblocking(False)
    return sock


def address_of(sock: socket.socket) -> str:
    """Return where a bound socket listens, as host:port."""
    name: Any = sock.getsockname()
    return f"[{name[0]}]:{name[1]}" if sock.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


class HttpListener:
    """Serves one site on one bound socket."""

    def __init__(self, site: HttpSite, sock: socket.socket) -> None:
        self._site = site
        self._socket = sock
        self._server: asyncio.Server | None = None

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._site.state.connections)

    async def start(self) -> None:
        """Accept connections from now on."""
        self._server = await self._site.loop.create_server(lambda: HttpConnection(self._site), sock=self._socket)

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
        deadline = self._site.loop.time() + timeout_s
        while self._site.state.connections and self._site.loop.time() < deadline:
            for connection in list(self._site.state.connections):
                connection.shutdown()
            await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for connection in list(self._site.state.connections):
            connection.transport.abort()
        self._site.close()


def _bind_error(host: str, port: int, error: OSError) -> InferenceServerError:
    if error.errno == 98:
        return unavailable(f"Socket '{host}:{port}' already in use")
    return invalid_argument(f"can't listen at '{host}:{port}': {error.strerror}")
