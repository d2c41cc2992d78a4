"""POST …/infer: decode, ask, encode.

Owns one inference over HTTP from its whole body to its response. It is the sink of its own request.
"""

from __future__ import annotations

from naiad.errors import InferenceServerError, internal
from naiad.frontends.http.connection import reply
from naiad.frontends.http.connection.body import Buffer
from naiad.frontends.http.connection.hot import HotExchange
from naiad.request.call import InferCall
from naiad.request.response import InferResponse
from naiad.wire.compression import compress, negotiate
from naiad.wire.kserve_request import decode_infer
from naiad.wire.kserve_response import encode_infer


class InferExchange(HotExchange):
    """See the module."""

    __slots__ = ("call", "response")

    call: InferCall

    def answer(self, body: Buffer) -> None:
        """See `HotExchange.answer`."""
        opened = self.opened
        route = opened.route
        self.response: InferResponse | None = None
        context = self.context
        call = self.call = decode_infer(
            body, opened.head.header_length, route.model_name, route.model_version, context.limits, context.templates
        )
        if opened.forwarded:
            call.parameters = {**call.parameters, **opened.forwarded}
        self.handle = context.service.infer(call, self)

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`: HTTP inference has exactly one response, sent when the request has ended."""
        if response is not None:
            if self.response is not None:
                self.fail(internal(f"expected a single response, got 2, from model '{response.model_name}'"))
                return
            self.response = response
        if not is_final or self.has_ended:
            return
        if self.response is None:
            self.fail(internal(f"expected a single response, got 0, from model '{self.opened.route.model_name}'"))
            return
        try:
            self._encode(self.response)
        except InferenceServerError as error:
            self.respond_error(error)
        except Exception:
            self.respond_fault()

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self.respond_error(error)

    def _encode(self, response: InferResponse) -> None:
        encoded = encode_infer(response, self.call, self.context.response_templates)
        buffers, headers = encoded.buffers, b""
        accepted = self.opened.head.accept_encoding
        coding = negotiate(accepted) if accepted else "identity"
        if coding != "identity":
            buffers = [compress(buffers, coding)]
            headers = b"Content-Encoding: %s\r\n" % coding.encode()
        if encoded.header_length is None:
            self.respond(200, reply.JSON, buffers, headers)
        else:
            headers += b"Inference-Header-Content-Length: %d\r\n" % encoded.header_length
            self.respond(200, reply.BINARY, buffers, headers)
