"""ModelStreamInfer: any number of requests to any models on one stream, and their responses.

Owns the order of responses: those of ordinary models in the order of their requests, those of decoupled models as they come.
An error of one request is a message in its place, unless the client asked (`triton_grpc_error: true`) for it to end the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from naiad.errors import InferenceServerError, internal
from naiad.frontends.grpc.call import CallTransport
from naiad.frontends.grpc.calls.infer import InferContext
from naiad.frontends.grpc.fault import logged_fault
from naiad.request.call import Buffer, InferCall
from naiad.request.response import InferResponse
from naiad.request.service import InferHandle
from naiad.wire.proto.infer_request import decode_infer, request_id
from naiad.wire.proto.stream_response import encode_stream_end, encode_stream_error, encode_stream_response

Message = list[Buffer]

# A stream takes no further requests while so many are open; below half of it, it goes on.
MAX_OPEN_REQUESTS = 1024


class StreamInferRpc:
    """See the module."""

    __slots__ = (
        "_ends_on_error",
        "_is_half_closed",
        "_is_held",
        "_open",
        "_ordered",
        "_waits_for_client",
        "context",
        "transport",
    )

    def __init__(self, context: InferContext, transport: CallTransport) -> None:
        self.context = context
        self.transport = transport
        self._ends_on_error = dict(transport.metadata).get(b"triton_grpc_error", b"").lower() == b"true"
        # Insertion order is the order of requests.
        self._open: dict[_StreamRequest, None] = {}
        self._ordered: deque[_StreamRequest] = deque()
        self._is_half_closed = False
        self._is_held = False
        self._waits_for_client = False

    def on_message(self, message: Buffer) -> None:
        """See `Rpc.on_message`: a request, issued at once. What is wrong with it is told in its place on the stream."""
        request = _StreamRequest(self)
        self._open[request] = None
        try:
            self._ask(request, message)
        except InferenceServerError as error:
            if not request.has_ended:
                if request not in self._ordered and not request.is_decoupled:
                    self._ordered.append(request)
                request.end(encode_stream_error(error.message, request.id or request_id(message)))
        self._hold_or_go_on()

    def on_half_close(self) -> None:
        """See `Rpc.on_half_close`: the stream ends well after the last response."""
        self._is_half_closed = True
        self._end_if_done()

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """See `Rpc.on_cancel`: every open request is given up."""
        requests, self._open = self._open, {}
        self._ordered.clear()
        for request in requests:
            request.cancel()

    def deliver(self) -> None:
        """Send what ordinary requests have ready, as far as their order allows."""
        ordered = self._ordered
        while ordered and ordered[0].has_ended:
            for message in ordered.popleft().take():
                self.transport.send(message)

    def forget(self, request: _StreamRequest) -> None:
        """A request has ended."""
        self._open.pop(request, None)
        self._hold_or_go_on()
        self._end_if_done()

    def break_off(self, error: InferenceServerError) -> bool:
        """End the stream with a request's error, where the client wants that; return whether so."""
        if self._ends_on_error:
            self.transport.finish(error)
            self.on_cancel(error)
        return self._ends_on_error

    def _ask(self, request: _StreamRequest, message: Buffer) -> None:
        context = self.context
        call, request.wants_empty_final = decode_infer(message, context.templates)
        call.takes_many_responses = True
        request.call = call
        request.id = call.id
        request.is_decoupled = context.service.is_decoupled(call.model_name, call.model_version)
        if not request.is_decoupled:
            self._ordered.append(request)
        request.handle = context.infer(call, request, self.transport)

    def _hold_or_go_on(self) -> None:
        """Take requests only while the client takes responses and not too many are open."""
        must_hold = len(self._open) >= (MAX_OPEN_REQUESTS // 2 if self._is_held else MAX_OPEN_REQUESTS)
        if not must_hold:
            # One question at a time: each that is answered with no is remembered until the client reads.
            if self._waits_for_client:
                return
            must_hold = self._waits_for_client = not self.transport.when_writable(self._client_reads)
        if must_hold != self._is_held:
            self._is_held = must_hold
            self.transport.hold_requests(must_hold)

    def _client_reads(self) -> None:
        self._waits_for_client = False
        self._hold_or_go_on()

    def _end_if_done(self) -> None:
        if self._is_half_closed and not self._open:
            self.transport.finish()


class _StreamRequest:
    """One request of a stream: the sink of its responses. Those of an ordinary model wait here for their turn."""

    __slots__ = ("_ready", "_rpc", "call", "handle", "has_ended", "id", "is_decoupled", "wants_empty_final")

    def __init__(self, rpc: StreamInferRpc) -> None:
        self._rpc = rpc
        self._ready: list[Message] = []
        self.call: InferCall | None = None
        self.handle: InferHandle | None = None
        self.has_ended = False
        self.id = ""
        self.is_decoupled = False
        self.wants_empty_final = False

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if self.has_ended:
            return
        try:
            message = self._encode(response, is_final)
        except InferenceServerError as error:
            self._give_up(error)
            return
        except Exception:
            self._give_up(logged_fault())
            return
        if is_final:
            self.end(message)
        elif message is not None:
            self._put(message)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        if self.has_ended or self._rpc.break_off(error):
            return
        call = self.call
        if call is None:
            self.end(encode_stream_error(error.message, self.id))
        else:
            self.end(encode_stream_error(error.message, self.id, call.model_name, call.model_version, is_final=True))

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._rpc.transport.when_writable(callback)

    def end(self, message: Message | None) -> None:
        """Take the last message of the request, None when nothing is to be said."""
        if message is not None:
            self._put(message)
        self.has_ended = True
        self._rpc.deliver()
        self._rpc.forget(self)

    def take(self) -> list[Message]:
        """Return what waits, once."""
        ready, self._ready = self._ready, []
        return ready

    def cancel(self) -> None:
        """Give the request up."""
        self.has_ended = True
        if self.handle is not None:
            self.handle.cancel()

    def _give_up(self, error: InferenceServerError) -> None:
        """End with an error of this side, and what runs on for the request."""
        self.fail(error)
        self.cancel()

    def _put(self, message: Message) -> None:
        if self.is_decoupled:
            self._rpc.transport.send(message)
        else:
            self._ready.append(message)

    def _encode(self, response: InferResponse | None, is_final: bool) -> Message | None:
        if response is not None:
            if not self.is_decoupled and (self._ready or not is_final):
                raise internal(f"expected a single response, got several, from model '{response.model_name}'")
            return encode_stream_response(response, is_final, self._rpc.context.response_templates)
        call = self.call
        if call is None or not self.is_decoupled:
            raise internal(f"expected a single response, got 0, from model '{call.model_name if call else ''}'")
        if self.wants_empty_final:
            return encode_stream_end(call.id, call.model_name, call.model_version)
        return None
