"""The process's limit of open files, which every connection counts against.

Owns the limit at start. Shells and containers often begin with 1,024, less than the connections that the server is to hold.
"""

from __future__ import annotations

import logging
import resource

# Listeners, pipes, log files, and what engines keep open.
RESERVE = 256
# A worker process takes some seven, with its memory: for a few hundred of them, where the hard limit allows it.
FOR_WORKERS = 4096

_log = logging.getLogger("naiad.server")


def raise_limit(max_connections: int) -> None:
    """Raise the soft limit to what `max_connections` need, as far as the hard limit allows; warn when that isn't enough.

    Beyond the limit the system closes new connections without a word to the client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_connections + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    generous = wanted + FOR_WORKERS
    allowed = generous if hard == resource.RLIM_INFINITY else min(generous, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    if allowed < wanted:
        _log.warning(
            "the system allows %d open files, too few for %d connections: raise that limit or lower --http-max-connections or "
            "--grpc-max-connections",
            allowed,
            max_connections,
        )
