"""The routes that are answered inside the connection: a dict lookup on the raw path.

Owns which paths are hot. Everything else goes to the Starlette app.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

_HOT_PATH = re.compile(rb"/v2/models/([^/]+)(?:/versions/([0-9]+))?/(infer|generate|generate_stream)\Z")
_ORIGIN = re.compile(rb"\Ahttps?://[^/?#]*", re.IGNORECASE)
_MOST_CACHED = 4096
_LONGEST_CACHED = 512
_MOST_VERSION_DIGITS = 18


class HotKind(Enum):
    """What a hot route does."""

    INFER = "infer"
    GENERATE = "generate"
    GENERATE_STREAM = "generate_stream"


@dataclass(frozen=True, slots=True)
class HotRoute:
    """A hot path: what is asked for of which model and version ("" for the latest)."""

    kind: HotKind
    model_name: str
    model_version: str


class HotRoutes:
    """Finds the hot route of a request target; remembers a bounded number of them."""

    __slots__ = ("_cache", "_parse")

    def __init__(self, is_enabled: bool = True) -> None:
        self._cache: dict[bytes, HotRoute | None] = {}
        self._parse = _parse if is_enabled else _no_route

    def find(self, target: bytes) -> HotRoute | None:
        """Return the hot route of a request target (path and query, as it was sent), or None."""
        try:
            return self._cache[target]
        except KeyError:
            route = self._parse(target)
            if len(target) <= _LONGEST_CACHED:
                if len(self._cache) >= _MOST_CACHED:
                    self._cache.clear()
                self._cache[target] = route
            return route


def _parse(target: bytes) -> HotRoute | None:
    # A proxy may send the absolute form (RFC 9112 §3.2.2).
    path = _ORIGIN.sub(b"", target, count=1).partition(b"#")[0].partition(b"?")[0]
    match = _HOT_PATH.match(path)
    if match is None:
        return None
    name, version, kind = match.groups()
    try:
        model_name = unquote_to_bytes(name).decode("utf-8")
    except UnicodeDecodeError:
        return None
    if version is not None and len(version) > _MOST_VERSION_DIGITS:
        return None
    return HotRoute(HotKind(kind.decode()), model_name, str(int(version)) if version else "")


def _no_route(_target: bytes) -> HotRoute | None:
    return None
