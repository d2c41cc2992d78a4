"""Header forwarding: request headers whose names match a pattern become parameters of the inference.

Owns the match and the names that may not be forwarded. The pattern is RE2, as in Triton, so that no pattern can be made slow by
a request; it matches a part of the name, without regard to case unless it begins with `(?-i)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from naiad.errors import invalid_argument

_RESERVED = frozenset(("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"))
_RESERVED_PREFIX = "triton_"
_NAMES_REMEMBERED = 1024


class HeaderForwarder:
    """Raises INVALID_ARGUMENT for a pattern that isn't RE2, naming the flag; "" forwards nothing and imports nothing."""

    __slots__ = ("_key_of",)

    def __init__(self, pattern: str, flag: str = "--http-header-forward-pattern") -> None:
        self._key_of: Callable[[bytes], str] | None = None
        if pattern:
            search = _compile(pattern, flag).search
            self._key_of = lru_cache(_NAMES_REMEMBERED)(lambda name: _key(name.decode("latin-1"), search))

    def parameters(self, headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
        """Return the parameters that these headers make: name → value, values of a repeated header joined by ", ".

        Raises INVALID_ARGUMENT when a matching header has a name with a meaning of its own.
        """
        found: dict[str, str] = {}
        if self._key_of is None:
            return found
        for name, value in headers:
            key = self._key_of(name)
            if key:
                text = _text(value)
                found[key] = f"{found[key]}, {text}" if key in found else text
        return found


def _compile(pattern: str, flag: str) -> Any:
    import re2  # noqa: PLC0415 — a compiled library that most servers don't need

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise invalid_argument(f"{flag} '{pattern}' is not an RE2 expression: {reason}") from error


def _key(name: str, search: Callable[[str], object | None]) -> str:
    """Return the parameter that a header becomes, "" when it isn't forwarded. An error isn't remembered by the cache."""
    if search(name) is None:
        return ""
    lower = name.lower()
    if lower in _RESERVED or lower.startswith(_RESERVED_PREFIX):
        raise invalid_argument(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
    return name


def _text(value: bytes) -> str:
    """Return a header's value as text: UTF-8 as clients of model parameters mean it, else the Latin-1 of older HTTP."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
