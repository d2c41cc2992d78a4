"""The cache in a Redis server: its memory and its rules of what goes first, shared by the servers that use it.

Owns the connection and what happens while there is none: every look-up is a miss then, and none waits. Doesn't own the form in
which a response is kept (`stored_form`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from naiad.cache.base import CachedResponse, data_bytes
from naiad.cache.stored_form import decode, encode
from naiad.config.options.scheduling_options import RedisSettings
from naiad.observability.prometheus_text import Family, Kind, Sample

MOST_BYTES = 1 << 20
"""What is larger isn't kept: to write and read it would hold up the event loop."""

_KEPT_SECONDS = 24 * 3600
_PROBE_SECONDS = 1.0
_MOST_OPEN = 1024
_PREFIX = b"naiad:"

_log = logging.getLogger("naiad.cache")


class RedisCache:
    """See `ResponseCache`. Entries go after a day, or when the server's own limit has them go; `forget` leaves it to that."""

    is_shared = True

    def __init__(self, settings: RedisSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._place = f"{settings.host}:{settings.port}"
        self._loop = loop
        self._client = _client(settings)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_down = False
        self._hits = self._misses = 0

    def accepts(self, size_bytes: int) -> bool:
        """See `ResponseCache.accepts`."""
        return size_bytes <= MOST_BYTES

    def lookup(self, generation: bytes, key: bytes) -> asyncio.Future[CachedResponse | None] | None:
        """See `ResponseCache.lookup`. While the server can't be reached nothing waits for it."""
        if self._is_down or len(self._tasks) >= _MOST_OPEN:
            self._misses += 1
            return None
        return self._begin(self._get(_PREFIX + generation + key))

    def confirms(self, generation: bytes, key: bytes, mark: object) -> bool:
        """See `ResponseCache.confirms`: nothing of Redis is known at once."""
        return False

    def insert(self, generation: bytes, key: bytes, response: CachedResponse) -> None:
        """See `ResponseCache.insert`. Packing and unpacking many strings takes too long for the loop: these aren't kept."""
        if self._is_down or len(self._tasks) >= _MOST_OPEN:
            return
        if self.accepts(response.size_bytes) and self.accepts(data_bytes(response.tensors)):
            self._begin(self._set(_PREFIX + generation + key, encode(response)))

    def forget(self, generation: bytes) -> None:
        """See `ResponseCache.forget`: nobody asks for these any more, and each goes in its time."""

    def families(self) -> Iterable[Family]:
        """See `ResponseCache.families`; what the Redis server holds it tells itself."""
        yield Family("nv_cache_num_lookups", Kind.COUNTER, "Lookups in the cache", [Sample(self._hits + self._misses, {})])
        yield Family("nv_cache_num_hits", Kind.COUNTER, "Lookups that found a response", [Sample(self._hits, {})])
        yield Family("nv_cache_num_misses", Kind.COUNTER, "Lookups that found none", [Sample(self._misses, {})])

    async def close(self) -> None:
        """See `ResponseCache.close`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _get(self, name: bytes) -> CachedResponse | None:
        try:
            found = await self._client.get(name)
        except (RedisError, OSError, asyncio.TimeoutError) as error:
            self._note_down(error)
            found = None
        response = None if found is None else decode(found)
        self._hits += response is not None
        self._misses += response is None
        return response

    async def _set(self, name: bytes, value: bytes) -> None:
        try:
            await self._client.set(name, value, ex=_KEPT_SECONDS)
        except (RedisError, OSError, asyncio.TimeoutError) as error:
            self._note_down(error)

    def _note_down(self, error: Exception) -> None:
        if self._is_down:
            return
        self._is_down = True
        _log.warning("the redis cache at %s can't be used, every request runs until it can: %s", self._place, error)
        self._begin(self._probe())

    async def _probe(self) -> None:
        """Try again until the server answers."""
        while self._is_down:
            await asyncio.sleep(_PROBE_SECONDS)
            try:
                await self._client.ping()
            except (RedisError, OSError, asyncio.TimeoutError):
                continue
            self._is_down = False
        _log.info("the redis cache at %s can be used again", self._place)


def _client(settings: RedisSettings) -> Any:
    tls: dict[str, Any] = {}
    if settings.is_tls:
        tls = {
            "connection_class": redis.asyncio.SSLConnection,
            "ssl_certfile": settings.cert or None,
            "ssl_keyfile": settings.key or None,
            "ssl_ca_certs": settings.cacert or None,
            "ssl_ca_path": settings.cacert_dir or None,
        }
    pool = redis.asyncio.BlockingConnectionPool(
        host=settings.host,
        port=settings.port,
        db=settings.db,
        username=settings.user or None,
        password=settings.password or None,
        socket_connect_timeout=settings.connect_timeout_ms / 1000,
        socket_timeout=settings.socket_timeout_ms / 1000,
        max_connections=settings.pool_size,
        timeout=settings.wait_timeout_ms / 1000,
        retry=Retry(NoBackoff(), 0),
        **tls,
    )
    return redis.asyncio.Redis(connection_pool=pool)
