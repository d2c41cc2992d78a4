"""Which idle models make room: a pure function.

Owns the order, least recently used first. What a model takes, and whether it is idle, it is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Resident(Generic[K]):
    """A model in memory, known by `key`. `last_used_ms` are milliseconds of any one clock."""

    key: K
    size_bytes: int
    last_used_ms: int
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Evictions(Generic[K]):
    """Who is to go, in this order, and the bytes that are missing even then: 0 when it is enough."""

    keys: tuple[K, ...]
    missing_bytes: int


def choose(excess_bytes: int, residents: Iterable[Resident[K]]) -> Evictions[K]:
    """Return which idle ones must go so that `excess_bytes` become free: the least recently used, and no more than needed.

    Of those that were used at the same time the first goes first. What takes nothing stays.
    """
    keys = []
    for resident in sorted(residents, key=lambda resident: resident.last_used_ms):
        if excess_bytes <= 0:
            break
        if resident.is_idle and resident.size_bytes:
            keys.append(resident.key)
            excess_bytes -= resident.size_bytes
    return Evictions(tuple(keys), max(excess_bytes, 0))
