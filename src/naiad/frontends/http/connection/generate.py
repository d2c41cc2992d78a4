"""POST …/generate and …/generate_stream: one JSON object in, one out, or one for each response as server-sent events.

Owns both over HTTP; the mapping to tensors is the codec's (`wire.generate`).
"""

from __future__ import annotations

from collections.abc import Callable

from naiad.errors import InferenceServerError, invalid_argument
from naiad.frontends.http.connection import reply
from naiad.frontends.http.connection.body import Buffer
from naiad.frontends.http.connection.hot import HotExchange
from naiad.frontends.http.connection.routes import HotKind
from naiad.frontends.http.status import error_body
from naiad.request.response import InferResponse
from naiad.wire.generate import decode_generate, encode_generate
from naiad.wire.sse import COMMENT, CONTENT_TYPE, event

_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of "
    "responses"
)


class GenerateExchange(HotExchange):
    """See the module."""

    __slots__ = ("response_count", "response_text")

    def start(self) -> None:
        """See `Exchange.start`: a compressed body is refused, not unpacked."""
        encoding = self.opened.head.encoding
        if encoding in ("", "identity"):
            super().start()
            return
        self.respond_error(
            invalid_argument(f"Content-Encoding '{encoding[:100]}' isn't supported by generate, send it uncompressed")
        )

    def answer(self, body: Buffer) -> None:
        """See `HotExchange.answer`."""
        route = self.opened.route
        self.response_count = 0
        self.response_text = b""
        service = self.context.service
        metadata = service.model_metadata(route.model_name, route.model_version)
        call = decode_generate(body, metadata, route.model_version, self.context.limits)
        call.takes_many_responses = True
        call.client = self.opened.client
        self.handle = service.infer(call, self)
        if self.has_ended:
            self._give_up()

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if self.has_ended:
            return
        try:
            text = None if response is None else encode_generate(response)
        except InferenceServerError as error:
            self.fail(error)
            return
        except Exception:
            self.respond_fault()
            return
        if self.opened.route.kind is HotKind.GENERATE_STREAM:
            self._send_event(text, is_final)
            return
        if text is not None:
            self.response_count += 1
            self.response_text = text
        if self.response_count > 1 or (is_final and not self.response_count):
            self.respond(200, reply.JSON, [error_body(_NOT_ONE)])
            self._give_up()
        elif is_final:
            self.respond(200, reply.JSON, [self.response_text])

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`: once a stream has begun, an error is its last event."""
        if not self.is_streaming:
            self.respond_error(error)
            return
        self.send_chunk(event(error_body(error.message)))
        self.end_stream()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: events wait in the connection for a client that reads slowly."""
        if self.opened.route.kind is not HotKind.GENERATE_STREAM:
            return True
        return self.connection.when_writable(callback)

    def probe(self) -> bytes:
        """See `Exchange.probe`: between two events there may be a comment."""
        return reply.chunk(COMMENT) if self.is_streaming else super().probe()

    def _give_up(self) -> None:
        """Stop what runs on for an exchange that is answered; without effect when the request has ended."""
        if self.handle is not None:
            self.handle.cancel()

    def _send_event(self, text: bytes | None, is_final: bool) -> None:
        if not self.is_streaming:
            self.begin_stream(200, CONTENT_TYPE)
        if text is not None:
            self.send_chunk(event(text))
        if is_final:
            self.end_stream()
