"""Heads that the parser has accepted before: the same bytes again need no parsing.

Owns that memory. A client repeats its heads to the byte, and what llhttp accepted as the whole head of a request with a body of
n bytes is one whenever it comes again between two requests, with n bytes behind it. Only whole requests in one piece are
recognised; everything else takes the parser. A property test holds both ways to the same responses. Who may ask is decided with
the head: refused ones aren't remembered, and all are forgotten when the API keys change.
"""

from __future__ import annotations

from naiad.frontends.http.connection.hot import OpenedHead

_END = b"\r\n\r\n"
_MOST_KNOWN = 1024
_LONGEST_KNOWN = 2048


class KnownHeads:
    """Remembers a bounded number of hot heads; shared by the connections of a site."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, OpenedHead] = {}

    def forget(self) -> None:
        """Forget all heads."""
        self._known.clear()

    def find(self, data: bytes) -> tuple[OpenedHead, int] | None:
        """Return the head that `data` begins with and where its body begins, when `data` is exactly one request."""
        end = data.find(_END, 0, _LONGEST_KNOWN)
        if end < 0:
            return None
        opened = self._known.get(data[:end])
        if opened is None or end + 4 + opened.head.content_length != len(data):
            return None
        return opened, end + 4

    def learn(self, data: bytes, opened: OpenedHead) -> None:
        """Remember the head of `data`, which the parser took as exactly one request whose head is `opened`.

        Blank lines between requests are no request: `opened` is then of the one before.
        """
        if opened.refusal is not None or not data.startswith(b"POST "):
            return
        end = data.find(_END, 0, _LONGEST_KNOWN)
        if end < 0 or end + 4 + opened.head.content_length != len(data):
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[data[:end]] = opened
