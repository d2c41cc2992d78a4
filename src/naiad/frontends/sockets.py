"""Listening sockets: TCP and Unix domain, with or without TLS.

Owns how an address is written, bound, shown and given back. Ports are bound before models are loaded, so that a taken one is a
clear line at start and not a surprise later. Doesn't own what is spoken over a connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, unavailable
from naiad.frontends.tls import ServerTls

BACKLOG = 1024
UNIX = "unix:"
_HANDSHAKE_SECONDS = 10.0
_MOST_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that listens, and the TLS that its connections begin with; None is without TLS.

    `address` says where: host:port, or unix:path.
    """

    sock: socket.socket
    address: str
    tls: ServerTls | None = None

    @property
    def url(self) -> str:
        """The address as an URL that can be opened on this machine: one that is every address is shown as localhost."""
        if self.address.startswith(UNIX):
            return self.address
        host, port = self.address.rsplit(":", 1)
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{'localhost' if host in ('0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 — compared, not bound

    async def serve(
        self, loop: asyncio.AbstractEventLoop, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.AbstractServer:
        """Accept connections from now on, each with a protocol of its own."""
        tls = None if self.tls is None else self.tls.context
        timeout_s = None if tls is None else _HANDSHAKE_SECONDS
        if self.sock.family == socket.AF_UNIX:
            return await loop.create_unix_server(
                protocol_factory, sock=self.sock, ssl=tls, ssl_handshake_timeout=timeout_s, backlog=BACKLOG
            )
        return await loop.create_server(
            protocol_factory, sock=self.sock, ssl=tls, ssl_handshake_timeout=timeout_s, backlog=BACKLOG
        )

    def close(self) -> None:
        """Close the socket; the file of a Unix socket goes, unless another server listens there by now. May be repeated."""
        self.sock.close()
        path = Path(self.address.removeprefix(UNIX))
        if self.address.startswith(UNIX) and not _is_taken(path):
            path.unlink(missing_ok=True)


def bind(host: str, port: int, reuse_port: bool = False, tls: ServerTls | None = None) -> BoundSocket:
    """Return a socket bound to `host` (a name or an IPv4 or IPv6 address) and `port` (0: the system chooses), or to the Unix
    socket of a host that is `unix:` and a path, which has no port.

    Raises UNAVAILABLE when the place is taken and INVALID_ARGUMENT for an address that can't be listened at.
    """
    sock = _bind_unix(host) if host.startswith(UNIX) else _bind_port(host, port, reuse_port)
    sock.setblocking(False)
    return BoundSocket(sock, address_of(sock), tls)


def address_of(sock: socket.socket) -> str:
    """Return where a bound socket listens, as host:port or unix:path."""
    name: Any = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"{UNIX}{name}"
    return f"[{name[0]}]:{name[1]}" if sock.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


def _bind_port(host: str, port: int, reuse_port: bool) -> socket.socket:
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
        raise _bind_error(f"{host}:{port}", error) from error
    return sock


def _bind_unix(address: str) -> socket.socket:
    # unix:///run/x is how gRPC's clients write unix:/run/x too.
    text = address.removeprefix(UNIX)
    path = text[2:] if text.startswith("///") else text
    size = len(os.fsencode(path))
    if not path or path.startswith("//") or "\0" in path or size > _MOST_PATH_BYTES:
        raise invalid_argument(
            f"'{address}' can't be listened at: after 'unix:' comes the path of the socket, of 1 to {_MOST_PATH_BYTES} bytes"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_left_over(Path(path), address)
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _bind_error(address, error) from error
    except InferenceServerError:
        sock.close()
        raise
    return sock


def _remove_left_over(path: Path, address: str) -> None:
    """Remove the socket of a server that was killed. Raises for one that is in use, and for any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise invalid_argument(f"can't listen at '{address}': there is a file of that name that is no socket")
    if _is_taken(path):
        raise unavailable(f"Socket '{address}' already in use")
    path.unlink()


def _is_taken(path: Path) -> bool:
    """Return whether a server listens at the socket `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _bind_error(place: str, error: OSError) -> InferenceServerError:
    if error.errno == errno.EADDRINUSE:
        return unavailable(f"Socket '{place}' already in use")
    return invalid_argument(f"can't listen at '{place}': {error.strerror}")
