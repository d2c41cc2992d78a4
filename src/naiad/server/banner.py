"""What the server prints when it is ready: models, addresses, a line to try."""

from __future__ import annotations

import json
from collections.abc import Iterator

from naiad.frontends.http.listener import address_of
from naiad.server.assembly import Server, Sockets


def lines(server: Server, sockets: Sockets) -> Iterator[str]:
    """Yield one line for programs, `NAIAD_READY {"models": 3}`, then those for a person's eyes."""
    index = server.repository.index(is_ready_only=False)
    yield f"NAIAD_READY {json.dumps({'models': sum(entry.state == 'READY' for entry in index)})}"
    width = max((len(entry.name) for entry in index), default=0)
    yield f"{'model':<{width}}  version  status"
    for entry in index:
        reason = f": {entry.reason}" if entry.reason else ""
        yield f"{entry.name:<{width}}  {entry.version or '-':<7}  {entry.state}{reason}"
    if sockets.metrics is not None:
        yield f"metrics at http://{address_of(sockets.metrics)}/metrics"
    if sockets.http is not None:
        address = address_of(sockets.http)
        yield f"HTTP at    http://{address}, described at http://{address}/docs"
        ready = next((entry.name for entry in index if entry.state == "READY"), None)
        yield f"try        curl http://{address}/v2" + (f"/models/{ready}" if ready else "")
