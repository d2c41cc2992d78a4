"""One assembled server from its first connection to its last: listen, load, drain, close.

Owns the order of the stop. Doesn't own what begins it (signals, the end of a `with` block) nor what becomes of the process.
"""

from __future__ import annotations

import asyncio
import logging

from naiad.config.options import ServerOptions
from naiad.errors import unavailable
from naiad.server.assembly import Server

_CLOSE_SECONDS = 1.0

_log = logging.getLogger("naiad.server")


class Lifecycle:
    """Runs one server. Loop thread only."""

    def __init__(self, server: Server, options: ServerOptions) -> None:
        self._server = server
        self._options = options

    async def listen(self) -> None:
        """Accept connections from now on; until the models are loaded, readiness says 503."""
        for listener in self._server.listeners:
            await listener.start()

    async def load(self) -> None:
        """Load every model; what failed is in `repository.failures()`."""
        await self._server.control.start()

    async def drain(self) -> bool:
        """Let go of what runs, in order: readiness, new requests, requests in flight.

        Return whether all were answered: False when the exit timeout has expired before.
        """
        server, timeout_s = self._server, self._options.exit_timeout_secs
        _log.info("stopping: waiting up to %d s for what is in flight", timeout_s)
        server.core.mark_not_ready()
        await asyncio.sleep(self._options.shutdown_delay_secs)
        server.core.begin_drain()
        for listener in server.listeners:
            listener.begin_drain()
        loop = asyncio.get_running_loop()
        return await self._is_all_answered(loop.time() + timeout_s)

    async def close(self) -> None:
        """Close connections and models, after `drain`."""
        await self.close_listeners()
        await self._server.control.close()
        self._server.core.release_regions()
        if self._server.cache is not None:
            await self._server.cache.close()
        self._server.pools.close()

    async def cut(self) -> None:
        """End what is still being answered with an error, the connections and the workers; a thread that runs goes on."""
        error = unavailable("the server is shutting down and its exit timeout has expired")
        for listener in self._server.listeners:
            listener.fail_requests(error)
        await self.close_listeners()
        self._server.control.stop()
        await self._server.repository.kill()
        self._server.pools.close()

    async def close_listeners(self) -> None:
        """Close the sockets and end the connections."""
        for listener in self._server.listeners:
            await listener.stop(_CLOSE_SECONDS)

    async def _is_all_answered(self, deadline: float) -> bool:
        """Wait until nothing is queued, runs or is on its way to a client, but not longer than `deadline` (loop time)."""
        idle = asyncio.Event()
        self._server.core.on_idle(idle.set)
        try:
            if not idle.is_set():
                await asyncio.wait_for(idle.wait(), deadline - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            return False
        for listener in self._server.listeners:
            if not await listener.wait_answered(deadline):
                return False
        return True
