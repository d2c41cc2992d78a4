"""Protobuf's wire format, as far as tensors shall not be copied: the top-level fields of a message, found without reading them.

Owns the cutting of a ModelInferRequest into its tensors, its id and the rest, and the writing of single fields. What the rest
says is protobuf's to read.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad.request.call import Buffer

_ID, _RAW_CONTENTS = 3, 7
# What protobuf skips in nanoseconds takes us a microsecond: a message of countless tiny fields is left to it.
_MOST_FIELDS = 1024
_CUT_OUT = (_RAW_CONTENTS, _ID)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A ModelInferRequest in parts: `raws` are views of its raw_input_contents, `id` its last id (UTF-8), `head` the bytes of
    all other fields, themselves a whole message.
    """

    head: bytes
    id: bytes
    raws: list[memoryview]


def split_request(message: Buffer) -> SplitRequest | None:
    """Return the parts of a ModelInferRequest, None when its outermost fields can't be told apart, or are too many."""
    view = memoryview(message)
    end = len(view)
    raws: list[memoryview] = []
    pieces: list[Buffer] = []
    request_id = b""
    position = piece_start = 0
    left = _MOST_FIELDS
    try:
        while position < end and left:
            left -= 1
            start = position
            tag = view[position]
            position += 1
            if tag >= 0x80:
                tag, position = _varint(view, start)
            kind = tag & 7
            if kind == _BYTES:
                length = view[position]
                position += 1
                if length >= 0x80:
                    length, position = _varint(view, position - 1)
                content, position = position, position + length
                field = tag >> 3
                if field not in _CUT_OUT:
                    continue
                pieces.append(view[piece_start:start])
                piece_start = position
                if field == _ID:
                    request_id = bytes(view[content:position])
                else:
                    raws.append(view[content:position])
            else:
                position = _skip(view, kind, position)
    except IndexError:
        return None
    if position != end:
        return None
    pieces.append(view[piece_start:])
    return SplitRequest(b"".join(pieces), request_id, raws)


def varint(value: int) -> bytes:
    """Return the varint of a number from 0 to 2^64-1."""
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def length_delimited(field: int, content: bytes) -> bytes:
    """Return a field that holds bytes, a text or a message."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def _skip(view: memoryview, kind: int, position: int) -> int:
    """Return where a value that isn't bytes ends. Raises IndexError for a kind without an end of its own (groups)."""
    if kind == _VARINT:
        return _varint(view, position)[1]
    if kind == _FIXED64:
        return position + 8
    if kind == _FIXED32:
        return position + 4
    raise IndexError(f"values of kind {kind} can't be skipped")


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at `position` and where it ends. Raises IndexError for one that is cut off or too long."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError("a varint of more than ten bytes")
