"""What the server prints when it is ready: models, addresses, a line to try."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from naiad.frontends.http.listener import address_of
from naiad.server.assembly import Server, Sockets


def lines(server: Server, sockets: Sockets) -> Iterator[str]:
    """Yield one line for programs, `NAIAD_READY {"models": 3}`, then those for a person's eyes."""
    index = server.repository.index(is_ready_only=False)
    yield f"NAIAD_READY {json.dumps({'models': sum(entry.state == 'READY' for entry in index)})}"
    width = max(map(len, ("model", *(entry.name for entry in index))))
    yield f"{'model':<{width}}  version  status"
    for entry in index:
        reason = f": {entry.reason}" if entry.reason else ""
        yield f"{entry.name:<{width}}  {entry.version or '-':<7}  {entry.state}{reason}"
    if sockets.metrics is not None:
        yield f"metrics  {_url(sockets.metrics)}/metrics"
    if sockets.grpc is not None:
        yield f"gRPC     {address_of(sockets.grpc)}"
    if sockets.http is not None:
        url = _url(sockets.http)
        ready = next((entry.name for entry in index if entry.state == "READY"), None)
        yield f"HTTP     {url}"
        yield f"docs     {url}/docs"
        yield f"try      curl {url}/v2" + (f"/models/{ready}" if ready else "")


def _url(sock: socket.socket) -> str:
    """Return an URL that can be opened on this machine: what listens at every address is shown as localhost."""
    host, port = address_of(sock).rsplit(":", 1)
    return f"http://{'localhost' if host in ('0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 — compared, not bound
