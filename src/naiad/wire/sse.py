"""Server-sent events: the framing of a streamed answer. Owns the frame; its payload is another codec's."""

from __future__ import annotations

CONTENT_TYPE = b"text/event-stream; charset=utf-8"

COMMENT = b":\n\n"
"""An empty comment: a client skips it."""


def event(payload: bytes) -> bytes:
    """Return one event that carries `payload`: JSON text, which holds no raw line break and so is one `data` line."""
    return b"data: %b\n\n" % payload
