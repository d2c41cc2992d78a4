"""Content codings of HTTP bodies: gzip, deflate and identity.

Owns decompression within a size limit, compression, and the choice of a coding by `Accept-Encoding`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from functools import lru_cache

from naiad.errors import InferenceServerError, invalid_argument, unimplemented
from naiad.request.call import Buffer

SUPPORTED = ("identity", "deflate", "gzip")

# The first level: on tensors it is several times faster than the default one and its output hardly larger.
_LEVEL = 1
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_MAX_MEMBERS = 65536
_MIN_SLICE_BYTES, _MAX_SLICE_BYTES = 512, 1 << 20
_ACCEPTED = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:;\s*[qQ]\s*=\s*(0(?:\.\d*)?|1(?:\.0*)?)\s*)?", re.ASCII)


def decompress(body: Buffer, coding: str, max_size_bytes: int) -> Buffer:
    """Return the body that `coding` (a `Content-Encoding` in lower case) holds, reading no further than `max_size_bytes`.

    All members of a gzip body count. deflate is zlib's format; the bare one, which some clients send, is taken too. Raises
    INVALID_ARGUMENT for a body that is broken, cut off or too large, UNIMPLEMENTED for another coding.
    """
    if coding == "identity":
        return body
    check_coding(coding)
    try:
        return _inflate(memoryview(body), coding, max_size_bytes)
    except zlib.error as error:
        raise invalid_argument(f"the request body is not valid {coding} data: {error}") from error


def check_coding(coding: str) -> None:
    """Raise UNIMPLEMENTED unless `coding` (in lower case) is one that bodies may have."""
    if coding not in SUPPORTED:
        raise unimplemented(f"Unsupported compression type '{coding[:100]}': send one of {', '.join(SUPPORTED)}")


def compress(buffers: Iterable[Buffer], coding: str) -> bytes:
    """Return `buffers`, one after the other, in the coding gzip or deflate."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP if coding == "gzip" else _ZLIB)
    parts = [compressor.compress(buffer) for buffer in buffers]
    parts.append(compressor.flush())
    return b"".join(parts)


@lru_cache(maxsize=64)
def negotiate(accept_encoding: str) -> str:
    """Return the coding for a response to a request with this `Accept-Encoding`.

    It is the first with the highest weight among identity, deflate and gzip; items that are malformed, unknown, `*` or of
    weight 0 don't count. Without any it is identity.
    """
    best, best_weight = "identity", 0.0
    for item in accept_encoding.split(","):
        match = _ACCEPTED.fullmatch(item)
        if match is None or match[1].lower() not in SUPPORTED:
            continue
        weight = float(match[2] or 1)
        if weight > best_weight:
            best, best_weight = match[1].lower(), weight
    return best


def _inflate(view: memoryview, coding: str, max_size_bytes: int) -> bytes:
    parts: list[bytes] = []
    position = size = members = 0
    while not members or (coding == "gzip" and position < len(view)):
        members += 1
        if members > _MAX_MEMBERS:
            raise invalid_argument(f"the gzip request body has more than {_MAX_MEMBERS} members")
        part, position = _inflate_member(view, position, _window_bits(view, coding), max_size_bytes - size)
        size += len(part)
        if size > max_size_bytes:
            raise _too_large(max_size_bytes)
        parts.append(part)
    if position < len(view):
        raise invalid_argument(f"{len(view) - position} byte(s) follow the end of the deflate request body")
    return parts[0] if members == 1 else b"".join(parts)


def _inflate_member(view: memoryview, position: int, window_bits: int, room: int) -> tuple[bytes, int]:
    """Return what the member at `position` holds, at most `room` + 1 bytes of it, and where it ends.

    It is fed in slices that grow: zlib copies what is left of a slice, which must not add up when members are many and small.
    """
    inflater = zlib.decompressobj(window_bits)
    parts: list[bytes] = []
    slice_bytes = _MIN_SLICE_BYTES
    while not inflater.eof and room >= 0:
        if position >= len(view):
            raise invalid_argument("the compressed request body is cut off")
        piece = view[position : position + slice_bytes]
        part = inflater.decompress(piece, room + 1)
        parts.append(part)
        room -= len(part)
        position += len(piece) - len(inflater.unused_data)
        slice_bytes = min(slice_bytes * 2, _MAX_SLICE_BYTES)
    return b"".join(parts), position


def _window_bits(view: memoryview, coding: str) -> int:
    if coding == "gzip":
        return _GZIP
    # A zlib header: method 8 in the low bits, and both bytes together a multiple of 31.
    is_zlib = len(view) >= 2 and view[0] & 0x0F == 8 and (view[0] << 8 | view[1]) % 31 == 0
    return _ZLIB if is_zlib else _RAW


def _too_large(max_size_bytes: int) -> InferenceServerError:
    return invalid_argument(
        f"the decompressed request body exceeds the limit of {max_size_bytes} bytes, raise it with --http-max-input-size "
        "or, over gRPC, --grpc-max-message-size"
    )
