"""POST …/infer: decode, ask, encode.

Owns one inference over HTTP from its whole body to its response. It is the sink of its own request.
"""

from __future__ import annotations

from naiad.errors import DecoupledModelError, InferenceServerError, internal, unimplemented
from naiad.frontends.http.connection import reply
from naiad.frontends.http.connection.body import Buffer
from naiad.frontends.http.connection.hot import HotExchange
from naiad.frontends.http.json_helper.process import Converted
from naiad.request.call import InferCall
from naiad.request.response import InferResponse, KeptAnswer
from naiad.wire.binary_form import response_as_parts
from naiad.wire.compression import compress, negotiate
from naiad.wire.kserve_request import decode_infer
from naiad.wire.kserve_response import encode_infer

# Reading a megabyte of JSON holds the GIL for some 10 ms, writing 256 kB of numbers too.
LARGE_JSON_BYTES = 1 << 20
LARGE_OUTPUT_BYTES = 1 << 18
# Packing frees the GIL but takes some 5 ms a megabyte.
LARGE_UNPACKED_BYTES = 1 << 18


class InferExchange(HotExchange):
    """See the module."""

    __slots__ = ("call", "response")

    call: InferCall

    def answer(self, body: Buffer) -> None:
        """See `HotExchange.answer`. A large JSON part is read by another process, and comes back as bytes."""
        self.response: InferResponse | None = None
        header_length = self.opened.head.header_length
        json_size = len(body) if header_length is None else header_length
        limit = self.context.limits.max_json_size_bytes
        if LARGE_JSON_BYTES < json_size <= min(limit, len(body)):
            self.context.json_helper.read_request(body, json_size, limit, self._take_converted)
        else:
            self._ask(body, header_length)

    def _take_converted(self, converted: Converted | InferenceServerError) -> None:
        self.go_on(converted, lambda request: self._ask(request.body, request.header_length))

    def _ask(self, body: Buffer, header_length: int | None) -> None:
        opened, context = self.opened, self.context
        route = opened.route
        call = self.call = decode_infer(
            body, header_length, route.model_name, route.model_version, context.limits, context.templates
        )
        call.client = opened.client
        if opened.forwarded:
            call.parameters = {**call.parameters, **opened.forwarded}
        try:
            self.handle = context.service.infer(call, self)
        except DecoupledModelError:
            raise unimplemented(
                f"HTTP end point doesn't support models with decoupled transaction policy, use generate_stream for model "
                f"'{route.model_name}'"
            ) from None

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
        if _is_large_in_json(response, self.call):
            self.context.json_helper.write_response(*response_as_parts(response, self.call), self._take_written)
            return
        encoded = encode_infer(response, self.call, self.context.response_templates)
        self._send(encoded.buffers, encoded.header_length)

    def _take_written(self, written: Converted | InferenceServerError) -> None:
        self.go_on(written, lambda response: self._send([response.body], response.header_length))

    def _send(self, buffers: list[Buffer], header_length: int | None) -> None:
        accepted = self.opened.head.accept_encoding
        coding = negotiate(accepted) if accepted else "identity"
        if coding == "identity":
            self._finish_response(buffers, header_length, b"")
        elif sum(map(len, buffers)) > LARGE_UNPACKED_BYTES:
            self.source = b""  # By then another model may answer.
            self.context.codec_thread.submit(
                lambda: compress(buffers, coding),
                lambda result: self.go_on(result, lambda packed: self._finish_packed(packed, header_length, coding)),
            )
        else:
            self._finish_packed(compress(buffers, coding), header_length, coding)

    def _finish_packed(self, packed: bytes, header_length: int | None, coding: str) -> None:
        self._finish_response([packed], header_length, b"Content-Encoding: %s\r\n" % coding.encode())

    def _finish_response(self, buffers: list[Buffer], header_length: int | None, headers: bytes) -> None:
        content_type = reply.JSON
        if header_length is not None:
            headers += b"Inference-Header-Content-Length: %d\r\n" % header_length
            content_type = reply.BINARY
        if self.response is not None and self.response.kept is not None:
            self._remember(self.response.kept, content_type, buffers, headers)
        self.respond(200, content_type, buffers, headers)

    def _remember(self, kept: KeptAnswer, content_type: bytes, buffers: list[Buffer], headers: bytes) -> None:
        """Let the same bytes be answered at once when they come again, when nothing but the answer comes of them."""
        call, opened = self.call, self.opened
        if not (self.source and opened.keep_alive) or self.connection.is_closing_wanted() or call.uses_regions:
            return
        if self.context.service.leads_to_one(call.model_name, call.model_version):
            head = reply.head(200, content_type, sum(map(len, buffers)), opened.extra + headers)
            self.context.answers.learn(self.source, kept, b"".join([head, *buffers]))


def _is_large_in_json(response: InferResponse, call: InferCall) -> bool:
    """Return whether so much is to be written as text that it would hold the loop."""
    size_bytes = 0
    for output in response.outputs:
        if output.region is not None:
            continue
        array = output.array
        size_bytes += sum(map(len, array.flat)) if array.dtype.hasobject else array.nbytes
    if size_bytes <= LARGE_OUTPUT_BYTES:
        return False
    return any(not output.is_binary for output in call.outputs) if call.outputs else not call.binary_output
