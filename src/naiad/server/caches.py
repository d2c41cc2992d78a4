"""Makes the response cache that the operator wants. Owns nothing of it afterwards."""

from __future__ import annotations

import asyncio

from naiad.cache.base import ResponseCache
from naiad.cache.local import LocalCache
from naiad.clock import Clock
from naiad.config.options.scheduling_options import CacheConfig
from naiad.errors import invalid_argument


def response_cache(config: CacheConfig | None, clock: Clock, loop: asyncio.AbstractEventLoop) -> ResponseCache | None:
    """Return the cache, None when none is wanted. Raises INVALID_ARGUMENT when the package for it isn't installed."""
    if config is None:
        return None
    if config.redis is None:
        return LocalCache(config.size_bytes, clock.call_soon)
    try:
        from naiad.cache.redis import RedisCache  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise invalid_argument(f"--cache-config=redis needs the package redis: pip install 'naiad[redis]' ({error})") from error
    return RedisCache(config.redis, loop)
