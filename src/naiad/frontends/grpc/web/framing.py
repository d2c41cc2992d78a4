"""What gRPC-Web has of its own: media types, the frame of trailers, and the text form, which is base64.

Owns these, without I/O. Messages are framed as gRPC's (`wire.grpc.framing`).
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from naiad.errors import invalid_argument

_BINARY, _TEXT = b"application/grpc-web", b"application/grpc-web-text"
_TRAILERS_FLAG = b"\x80"
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_PAD = ord("=")
_QUAD = 4


@dataclass(frozen=True, slots=True)
class MediaTypes:
    """What a call's body is, and what its answer is to be: `request_is_text` and `response_is_text` are for base64."""

    request_is_text: bool
    response_is_text: bool

    @property
    def response_type(self) -> bytes:
        """The Content-Type of the answer."""
        return (_TEXT if self.response_is_text else _BINARY) + b"+proto"


def media_types(content_type: bytes, accept: bytes) -> MediaTypes | None:
    """Return what these header fields ask for, None when `content_type` isn't gRPC-Web's with protobuf.

    Without a type of gRPC-Web in `accept`, the answer is of the request's form.
    """
    form = _is_text(content_type)
    if form is None:
        return None
    accepted = [found for found in map(_is_text, accept.split(b",")) if found is not None]
    return MediaTypes(form, accepted[0] if accepted else form)


def trailers_frame(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the last frame of an answer: its trailers, as lines of HTTP/1."""
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return _TRAILERS_FLAG + len(lines).to_bytes(4, "big") + lines


class TextDecoder:
    """Turns the base64 of one body back into bytes, in whatever pieces it comes. Padding may stand within it, where a client
    has put several encoded parts behind each other.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are complete. Raises INVALID_ARGUMENT for what isn't base64."""
        data = self._rest + data
        size = len(data) - len(data) % _QUAD
        self._rest = data[size:]
        return _decoded(data[:size]) if size else b""

    def end(self) -> None:
        """The body ends here. Raises INVALID_ARGUMENT when it is cut off."""
        if self._rest:
            raise invalid_argument(
                f"the body is not base64: {len(self._rest)} character(s) are left over, padded parts have a multiple of 4"
            )


def encode_text(data: bytes) -> bytes:
    """Return `data` as one padded part of base64."""
    return binascii.b2a_base64(data, newline=False)


def _is_text(media_type: bytes) -> bool | None:
    """Return whether a media type is that of the text form, None when it is none of gRPC-Web."""
    name = media_type.partition(b";")[0].strip().lower()
    name = name.removesuffix(b"+proto")
    return None if name not in (_BINARY, _TEXT) else name == _TEXT


def _decoded(quads: bytes) -> bytes:
    strange = quads.translate(None, _ALPHABET)
    if strange:
        raise invalid_argument(f"the body is not base64: it has the byte 0x{strange[0]:02x}")
    if b"=" not in quads:
        return binascii.a2b_base64(quads)
    # All at once, padding as zeros that are cut out again: a part may be as short as four characters.
    is_pad = np.frombuffer(quads, np.uint8).reshape(-1, _QUAD) == _PAD
    if is_pad[:, :2].any() or (is_pad[:, 2] & ~is_pad[:, 3]).any():
        raise invalid_argument("the body is not base64: padding stands within a group of 4 characters")
    triples = np.frombuffer(binascii.a2b_base64(quads.replace(b"=", b"A")), np.uint8).reshape(-1, 3)
    decoded: bytes = triples[~is_pad[:, 1:]].tobytes()
    return decoded
