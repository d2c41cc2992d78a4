"""Makes the response cache that the operator wants. Owns nothing of it afterwards."""

from __future__ import annotations

from naiad.cache.base import ResponseCache
from naiad.cache.local import LocalCache
from naiad.clock import Clock
from naiad.config.options.scheduling_options import CacheConfig


def response_cache(config: CacheConfig | None, clock: Clock) -> ResponseCache | None:
    """Return the cache, None when none is wanted."""
    return None if config is None else LocalCache(config.size_bytes, clock.call_soon)
