"""The kinds of values that flags take: how a text is read and how help and documentation name it.

Owns the reading of one value. Doesn't own which flag has which kind (`server_options`) nor values of several parts
(`composite`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeVar

_Number = TypeVar("_Number", int, float)

_TRUE = frozenset({"true", "on", "1"})
_FALSE = frozenset({"false", "off", "0"})
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?:([kmgt])(i)?)?b?", re.IGNORECASE | re.ASCII)
_MAX_BYTES = 1 << 62


class Kind(Protocol):
    """How the value of a flag is written."""

    @property
    def metavar(self) -> str:
        """The value's place holder in help texts; "" for a flag without a value."""

    @property
    def allowed(self) -> str:
        """What is allowed, as it reads after "must be"."""

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for. Raises ValueError when it is none of what is allowed."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A flag without a value: there, or not."""

    metavar: str = ""
    allowed: str = "given without a value"

    def parse(self, text: str) -> bool:
        """Return True: the command line gives the text only when the flag is there."""
        return bool(text)


@dataclass(frozen=True, slots=True)
class Bool:
    """true, on, 1 or false, off, 0 in any case."""

    metavar: str = "BOOL"
    allowed: str = "true, on, 1, false, off or 0"

    def parse(self, text: str) -> bool:
        """See `Kind.parse`."""
        folded = text.lower()
        if folded in _TRUE:
            return True
        if folded in _FALSE:
            return False
        raise ValueError


@dataclass(frozen=True, slots=True)
class Int:
    """A decimal whole number from `minimum` to `maximum`, both included; None is without an end."""

    minimum: int | None = None
    maximum: int | None = None
    metavar: str = "INT"

    @property
    def allowed(self) -> str:
        """See `Kind.allowed`."""
        return "a whole number" + _range_text(self.minimum, self.maximum)

    def parse(self, text: str) -> int:
        """See `Kind.parse`."""
        if not _WHOLE_NUMBER.fullmatch(text):
            raise ValueError
        return _in_range(int(text), self.minimum, self.maximum)


@dataclass(frozen=True, slots=True)
class Bytes:
    """A number of bytes with or without a unit, in any case: 512MiB, 1.5G, 4096."""

    metavar: str = "BYTES"
    allowed: str = "a number of bytes, which may end in K, M, G or T (powers of 1000) or Ki, Mi, Gi or Ti (of 1024)"

    def parse(self, text: str) -> int:
        """See `Kind.parse`."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise ValueError
        number, letter, binary = found.groups()
        power = "kmgt".index(letter.lower()) + 1 if letter else 0
        size = Fraction(number) * (1024 if binary else 1000) ** power
        return _in_range(int(size), 0, _MAX_BYTES)


@dataclass(frozen=True, slots=True)
class Float:
    """A finite number of at least `minimum`."""

    minimum: float
    metavar: str = "NUMBER"

    @property
    def allowed(self) -> str:
        """See `Kind.allowed`."""
        return "a number" + _range_text(self.minimum, None)

    def parse(self, text: str) -> float:
        """See `Kind.parse`."""
        value = float(text)
        if not math.isfinite(value):
            raise ValueError
        return _in_range(value, self.minimum, None)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, or any that isn't empty."""

    is_empty_allowed: bool = True
    metavar: str = "TEXT"

    @property
    def allowed(self) -> str:
        """See `Kind.allowed`."""
        return "a text" if self.is_empty_allowed else "a text that is not empty"

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        if not (text or self.is_empty_allowed):
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class PlainName:
    """The name of a file without its ending, or nothing."""

    metavar: str = "NAME"
    allowed: str = "the name of a file, without '/'"

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        if "/" in text or "\0" in text:
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A path on this machine; whether anything is there is seen when it is read."""

    metavar: str = "PATH"
    allowed: str = "a path on this machine"

    def parse(self, text: str) -> Path:
        """See `Kind.parse`."""
        if not text or "://" in text:
            raise ValueError
        return Path(text)


@dataclass(frozen=True, slots=True)
class RepositoryPlace:
    """A path on this machine, or a URL, which stays a text; whether anything is there is seen when it is read."""

    metavar: str = "PATH_OR_URL"
    allowed: str = "a path, or a URL such as s3://bucket/path"

    def parse(self, text: str) -> Path | str:
        """See `Kind.parse`."""
        scheme, is_url, _ = text.partition("://")
        if not text or (is_url and not scheme):
            raise ValueError
        return text if is_url else Path(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names, in any case; the value is the name as it is written here."""

    names: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """See `Kind.metavar`."""
        return "|".join(self.names)

    @property
    def allowed(self) -> str:
        """See `Kind.allowed`."""
        return " or ".join(self.names)

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        by_folded = {name.lower(): name for name in self.names}
        if text.lower() not in by_folded:
            raise ValueError
        return by_folded[text.lower()]


def _range_text(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return ""
    return f" of at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"


def _in_range(value: _Number, minimum: float | None, maximum: float | None) -> _Number:
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise ValueError
    return value
