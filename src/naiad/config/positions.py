"""Where in a config.pbtxt each value stands: a small reader of text format that keeps places and no values.

Owns the map from field paths to places. Reads only what protobuf's own reader has accepted: that one decides what is right.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_encoding

from naiad.config import schema
from naiad.config.findings import FieldPath
from naiad.proto import message_class

_TOKEN = re.compile(r"""\#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[-+.\w]+|\S""")
_OCTAL = re.compile(r"0(\d+)")
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text; both count from 1, the column in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


def field_positions(text: str) -> dict[FieldPath, Position]:
    """Return the place of each value in `text`, a config.pbtxt that has been read without error, and of each block.

    A plain value stands where its text begins, a block where its field's name or, in a list, its brace does.
    """
    offsets = _Reader(text).read()
    starts = _line_starts(text)
    return {path: _position(offset, starts) for path, offset in offsets.items()}


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that its block (a message's descriptor) doesn't have."""

    name: str
    position: Position
    block: Any


def unknown_fields(text: str) -> list[UnknownField]:
    """Return the unknown fields in `text`, which has been read without any other error, in their order."""
    reader = _Reader(text)
    reader.read()
    starts = _line_starts(text)
    return [UnknownField(name, _position(offset, starts), block) for name, offset, block in reader.unknown]


def nearest(positions: Mapping[FieldPath, Position], path: FieldPath) -> Position | None:
    """Return the place of `path`, or of the innermost block around it that is in the file; None when none is."""
    for length in range(len(path), 0, -1):
        found = positions.get(path[:length])
        if found is not None:
            return found
    return None


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _position(offset: int, starts: list[int]) -> Position:

    line = bisect_right(starts, offset)
    return Position(line, offset - starts[line - 1] + 1)


class _Reader:
    """Walks the tokens of one text once. `unknown` are the fields that aren't there: name, offset, descriptor of the block."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text) if not match[0].startswith("#")]
        self._tokens.append(("", len(text)))
        self._next = 0
        self.unknown: list[tuple[str, int, Any]] = []

    def read(self) -> dict[FieldPath, int]:
        """Return the offset of every value."""
        return self._block(message_class("inference.ModelConfig").DESCRIPTOR, "")[0]

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _take(self) -> tuple[str, int]:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _skip(self, *wanted: str) -> bool:
        found = self._peek() in wanted
        self._next += found
        return found

    def _block(self, descriptor: Any, end: str) -> tuple[dict[FieldPath, int], dict[str, str]]:
        """Read to `end`; return offsets by the path in this block, and the texts of its plain values."""
        offsets: dict[FieldPath, int] = {}
        texts: dict[str, str] = {}
        counts: dict[str, int] = {}
        while not self._skip(end):
            name, start = self._take()
            field = descriptor.fields_by_name.get(name)
            self._skip(":")
            if field is None:
                self.unknown.append((name, start, descriptor))
                self._skip_value()
            elif self._skip("["):
                while not self._skip("]"):
                    self._value(field, self._tokens[self._next][1], counts, offsets, texts)
                    self._skip(",")
            else:
                self._value(field, start, counts, offsets, texts)
            self._skip(",", ";")
        return offsets, texts

    def _value(
        self, field: Any, start: int, counts: dict[str, int], offsets: dict[FieldPath, int], texts: dict[str, str]
    ) -> None:
        path: FieldPath = (field.name,)
        if schema.is_repeated(field) and not schema.is_map(field):
            path = (field.name, counts.get(field.name, 0))
            counts[field.name] = counts.get(field.name, 0) + 1
        if field.message_type is None:
            texts[field.name], offsets[path] = self._plain()
            return
        inside, inner_texts = self._block(field.message_type, _CLOSING[self._take()[0]])
        if schema.is_map(field):
            path = (field.name, _map_key(field.message_type.fields_by_name["key"], inner_texts.get("key")))
            start = inside.get(("value",), start) if field.message_type.fields_by_name["value"].message_type is None else start
            inside = {rest[1:]: offset for rest, offset in inside.items() if rest[0] == "value" and len(rest) > 1}
        offsets[path] = start
        offsets.update({(*path, *rest): offset for rest, offset in inside.items()})

    def _skip_value(self) -> None:
        """Go behind the value of an unknown field: to the end of its brackets, or of its plain value."""
        if self._peek() not in ("{", "<", "["):
            self._plain()
            return
        depth = 0
        while True:
            token, _ = self._take()
            depth += (token in ("{", "<", "[")) - (token in ("}", ">", "]"))
            if depth == 0:
                return

    def _plain(self) -> tuple[str, int]:
        """Take one value; texts that follow each other are one."""
        first, start = self._take()
        parts = [first]
        while first[:1] in ("'", '"') and self._peek()[:1] in ("'", '"'):
            parts.append(self._take()[0])
        return (_unescape(parts) if first[:1] in ("'", '"') else first), start


def _unescape(parts: list[str]) -> str:
    return b"".join(text_encoding.CUnescape(part[1:-1]) for part in parts).decode()


def _map_key(field: Any, text: str | None) -> str | int:
    """Return a map's key as the message has it; one that isn't written is empty."""
    if schema.integer_range(field) is None:
        return text or ""
    octal = _OCTAL.fullmatch(text or "")
    return int(octal[1], 8) if octal else int(text or "0", 0)
