"""What came before to the byte: heads that need no parsing, and whole requests whose answers lie in the response cache.

Owns that. A client repeats its heads to the byte, and what llhttp accepted as the whole head of a request with a body of
n bytes is one whenever it comes again between two requests, with n bytes behind it. Only whole requests in one piece are
recognised; everything else takes the parser. A property test holds both ways to the same responses. Who may ask is decided with
the head: refused ones aren't remembered, and all are forgotten when the API keys change.
"""

from __future__ import annotations

from naiad.frontends.http.connection.hot import OpenedHead
from naiad.request.response import KeptAnswer

_END = b"\r\n\r\n"
_MOST_KNOWN = 1024
_LONGEST_KNOWN = 2048
# Comparing more bytes than this is no longer much quicker than hashing them.
_LONGEST_REQUEST = _LONGEST_ANSWER = 16 << 10
_MOST_ANSWER_BYTES = 8 << 20


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


class KnownAnswers:
    """Remembers the bytes that whole requests were answered with from the response cache, up to 8 MiB of both.

    An answer is given again only while the cache still holds it; who asks must have no other request on its connection.
    """

    __slots__ = ("_known", "_size_bytes")

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[KeptAnswer, bytes]] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        """Forget all: who may ask, or what a request leads to, has changed."""
        self._known.clear()
        self._size_bytes = 0

    def find(self, data: bytes) -> bytes | None:
        """Return the whole response to the request `data`, which then counts as answered; None when it has to be asked."""
        if not self._known or len(data) > _LONGEST_REQUEST:
            return None
        known = self._known.get(data)
        return known[1] if known is not None and known[0].repeat() else None

    def learn(self, data: bytes, kept: KeptAnswer, response: bytes) -> None:
        """Remember that `data`, exactly one request, was answered with `response`, which says `kept`."""
        if len(data) > _LONGEST_REQUEST or len(response) > _LONGEST_ANSWER:
            return
        before = self._known.pop(data, None)
        if before is not None:
            self._size_bytes -= len(data) + len(before[1])
        if self._size_bytes + len(data) + len(response) > _MOST_ANSWER_BYTES:
            self.forget()
        self._size_bytes += len(data) + len(response)
        self._known[data] = (kept, response)
