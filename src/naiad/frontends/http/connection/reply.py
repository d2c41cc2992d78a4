"""Response heads as bytes: status lines and header blocks, rendered once where they can be."""

from __future__ import annotations

import http

JSON = b"application/json"
BINARY = b"application/octet-stream"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}


def head(status: int, content_type: bytes, content_length: int, extra: bytes = b"") -> bytes:
    """Return the head of a response with a body of `content_length` bytes; `extra` are whole header lines."""
    return b"%sContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
        _STATUS_LINES[status],
        content_type,
        content_length,
        extra,
    )


def chunked_head(status: int, content_type: bytes, extra: bytes = b"") -> bytes:
    """Return the head of a response that is sent in chunks."""
    return b"%sContent-Type: %b\r\nTransfer-Encoding: chunked\r\n%b\r\n" % (_STATUS_LINES[status], content_type, extra)


def empty(status: int, extra: bytes = b"") -> bytes:
    """Return a whole response without a body."""
    return b"%sContent-Length: 0\r\n%b\r\n" % (_STATUS_LINES[status], extra)


def no_content(extra: bytes = b"") -> bytes:
    """Return a whole 204, which has no length either."""
    return b"%s%b\r\n" % (_STATUS_LINES[204], extra)


def as_pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return whole header lines as pairs of a name in lower case and a value."""
    pairs = [line.split(b": ", 1) for line in lines.split(b"\r\n") if line]
    return [(name.lower(), value) for name, value in pairs]


def chunk(data: bytes) -> bytes:
    """Return `data`, which isn't empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
