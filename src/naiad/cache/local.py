"""The cache in the server's own memory: the least recently used responses go first.

Owns the entries and their sizes. Doesn't own what a key is made of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from naiad.cache.base import CachedResponse
from naiad.observability.prometheus_text import Family, Kind, Sample

_FORGOTTEN_A_TURN = 500


class LocalCache:
    """See `ResponseCache`. Its responses take `limit_bytes` at most, by their own `size_bytes`; all models share it.

    `call_soon` runs a callback in a later turn of the loop: what has to go goes in pieces.
    """

    is_shared = False

    def __init__(self, limit_bytes: int, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._limit_bytes = limit_bytes
        self._call_soon = call_soon
        self._entries: OrderedDict[tuple[bytes, bytes], CachedResponse] = OrderedDict()
        self._coming: dict[tuple[bytes, bytes], CachedResponse] = {}
        self._keys: dict[bytes, dict[bytes, None]] = {}
        self.used_bytes = 0
        self._hits = self._misses = self._evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def accepts(self, size_bytes: int) -> bool:
        """See `ResponseCache.accepts`."""
        return size_bytes <= self._limit_bytes

    def lookup(self, generation: bytes, key: bytes) -> CachedResponse | None:
        """See `ResponseCache.lookup`."""
        place = (generation, key)
        found = self._entries.get(place)
        if found is None:
            self._misses += 1
        else:
            self._hits += 1
            self._entries.move_to_end(place)
        return found

    def confirms(self, generation: bytes, key: bytes, mark: object) -> bool:
        """See `ResponseCache.confirms`."""
        place = (generation, key)
        found = self._entries.get(place)
        if found is None or found.mark is not mark:
            return False
        self._hits += 1
        self._entries.move_to_end(place)
        return True

    def insert(self, generation: bytes, key: bytes, response: CachedResponse) -> None:
        """See `ResponseCache.insert`. One that is larger than the whole cache isn't kept."""
        self._remove(generation, key)
        if response.size_bytes <= self._limit_bytes:
            self._coming[generation, key] = response
            self._make_room(generation, key)

    def _make_room(self, generation: bytes, key: bytes) -> None:
        """Let others go, and put in what is to come: in a later turn, when a large one takes the place of many."""
        response = self._coming.get((generation, key))
        if response is None:
            return
        for _ in range(_FORGOTTEN_A_TURN):
            if self.used_bytes + response.size_bytes <= self._limit_bytes:
                del self._coming[generation, key]
                self._entries[generation, key] = response
                self._keys.setdefault(generation, {})[key] = None
                self.used_bytes += response.size_bytes
                return
            self._remove(*next(iter(self._entries)))
            self._evictions += 1
        self._call_soon(lambda: self._make_room(generation, key))

    def forget(self, generation: bytes) -> None:
        """See `ResponseCache.forget`."""
        for place in [place for place in self._coming if place[0] == generation]:
            del self._coming[place]
        keys = self._keys.get(generation)
        if keys is None:
            return
        for key in [key for key, _ in zip(keys, range(_FORGOTTEN_A_TURN))]:
            self._remove(generation, key)
        if generation in self._keys:
            self._call_soon(lambda: self.forget(generation))

    async def close(self) -> None:
        """See `ResponseCache.close`: there is nothing open."""

    def families(self) -> Iterable[Family]:
        """See `ResponseCache.families`; the names are Triton's."""
        lookups = self._hits + self._misses
        yield _family("nv_cache_num_entries", Kind.GAUGE, "Responses in the cache", len(self._entries))
        yield _family("nv_cache_num_lookups", Kind.COUNTER, "Lookups in the cache", lookups)
        yield _family("nv_cache_num_hits", Kind.COUNTER, "Lookups that found a response", self._hits)
        yield _family("nv_cache_num_misses", Kind.COUNTER, "Lookups that found none", self._misses)
        yield _family("nv_cache_num_evictions", Kind.COUNTER, "Responses that went to make place", self._evictions)
        share = self.used_bytes / self._limit_bytes if self._limit_bytes else 0.0
        yield _family("nv_cache_util", Kind.GAUGE, "Share of the cache's bytes in use, 0.0 to 1.0", share)

    def _remove(self, generation: bytes, key: bytes) -> None:
        removed = self._entries.pop((generation, key), None)
        if removed is None:
            return
        self.used_bytes -= removed.size_bytes
        keys = self._keys[generation]
        del keys[key]
        if not keys:
            del self._keys[generation]


def _family(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, [Sample(value, {})])
