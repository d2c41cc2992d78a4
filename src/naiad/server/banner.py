"""What the server prints when it is ready: models, addresses, a line to try."""

from __future__ import annotations

import json
from collections.abc import Iterator

from naiad.frontends.sockets import UNIX
from naiad.server.assembly import Server
from naiad.server.listening import Sockets


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
        yield f"metrics  {sockets.metrics.url}/metrics"
    if sockets.grpc is not None:
        yield f"gRPC     {sockets.grpc.address}"
    if sockets.http is not None:
        url = sockets.http.url
        ready = next((entry.name for entry in index if entry.state == "READY"), None)
        yield f"HTTP     {url}"
        if url.startswith(UNIX):
            yield f"try      curl --unix-socket {url.removeprefix(UNIX)} http://localhost/v2" + (
                f"/models/{ready}" if ready else ""
            )
        else:
            yield f"docs     {url}/docs"
            yield f"try      curl {url}/v2" + (f"/models/{ready}" if ready else "")
