"""One request that the connection answers itself, and its response.

Owns the order of a response's parts. Subclasses decode, call the service and encode. Loop thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from naiad.errors import InferenceServerError
from naiad.frontends.http.connection import reply
from naiad.frontends.http.status import STATUS_OF_CODE, error_body

Buffer = bytes | bytearray | memoryview

_log = logging.getLogger("naiad.http")


class Transmitter(Protocol):
    """What an exchange needs of its connection."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send bytes; does nothing when the client is gone."""

    def end(self, exchange: Exchange) -> None:
        """Go on to the next request: this one's response is complete."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """Return whether the client reads what was written; when not, call `callback` once when it has or is gone."""

    def is_closing_wanted(self) -> bool:
        """Whether the server wants connections to end: it is shutting down."""


class Exchange:
    """A request in place. `extra` are whole header lines for every response to it. `is_streaming`: a part of it was sent."""

    __slots__ = ("connection", "extra", "has_ended", "is_streaming", "keep_alive", "must_discard")

    def __init__(self, connection: Transmitter, extra: bytes, keep_alive: bool) -> None:
        self.connection = connection
        self.extra = extra
        self.keep_alive = keep_alive
        self.has_ended = False
        self.is_streaming = False
        self.must_discard = False

    def start(self) -> None:
        """Answer: it is this request's turn and its body is complete."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The client is gone: whatever runs for this request may stop."""
        self.has_ended = True

    def probe(self) -> bytes:
        """Return bytes that may be sent now and that a client skips, b"" when there are none: they find out a lost client."""
        return b"" if self.is_streaming else reply.CONTINUE

    def respond(self, status: int, content_type: bytes, body: Sequence[Buffer], headers: bytes = b"") -> None:
        """Send a whole response."""
        if self.has_ended:
            return
        length = len(body[0]) if len(body) == 1 else sum(map(len, body))
        self.connection.write([reply.head(status, content_type, length, self._lines(headers)), *body])
        self._finish()

    def respond_error(self, error: InferenceServerError, headers: bytes = b"") -> None:
        """Send an error as JSON with the status of its code."""
        if error.retry_after_s:
            headers += b"Retry-After: %d\r\n" % error.retry_after_s
        self.respond(STATUS_OF_CODE[error.code], reply.JSON, [error_body(error.message)], headers)

    def respond_fault(self) -> None:
        """Send 500 for a fault of the server's own; the current exception goes to the log."""
        _log.exception("a request failed by a fault of the server")
        self.respond(500, reply.JSON, [error_body("internal error, see the server's log")])

    def begin_stream(self, status: int, content_type: bytes) -> None:
        """Send the head of a response in chunks."""
        self.is_streaming = True
        self.connection.write([reply.chunked_head(status, content_type, self._lines(b""))])

    def send_chunk(self, data: bytes) -> None:
        """Send one chunk."""
        if not self.has_ended:
            self.connection.write([reply.chunk(data)])

    def end_stream(self) -> None:
        """Send the end of a response in chunks."""
        if not self.has_ended:
            self.connection.write([reply.LAST_CHUNK])
            self._finish()

    def _lines(self, headers: bytes) -> bytes:
        """Return the header lines of this response; a closing server says so in each."""
        if self.keep_alive and not self.connection.is_closing_wanted():
            return self.extra + headers
        self.keep_alive = False
        return self.extra + headers + b"Connection: close\r\n"

    def _finish(self) -> None:
        self.has_ended = True
        self.connection.end(self)


class Refusal(Exchange):
    """A request that is refused by its head or its framing alone; what is still to come of it is thrown away."""

    __slots__ = ("_error", "_status")

    def __init__(self, connection: Transmitter, extra: bytes, status: int, message: str) -> None:
        super().__init__(connection, extra, keep_alive=False)
        self._status = status
        self._error = message
        self.must_discard = True

    def start(self) -> None:
        """See `Exchange.start`."""
        self.respond(self._status, reply.JSON, [error_body(self._error)])


class Preflight(Exchange):
    """A browser's question whether it may ask; `lines` are the header lines of the answer."""

    __slots__ = ("_lines_of_answer",)

    def __init__(self, connection: Transmitter, lines: bytes, keep_alive: bool) -> None:
        super().__init__(connection, b"", keep_alive)
        self._lines_of_answer = lines

    def start(self) -> None:
        """See `Exchange.start`."""
        self.connection.write([reply.no_content(self._lines(self._lines_of_answer))])
        self._finish()
