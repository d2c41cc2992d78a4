"""ModelInfer: decode, ask, encode.

Owns one inference over gRPC from its message to its response. It is the sink of its own request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from naiad.errors import DecoupledModelError, InferenceServerError, internal, unavailable, unimplemented
from naiad.frontends.clients import ClientReader
from naiad.frontends.grpc.call import SHUTTING_DOWN, CallTransport
from naiad.frontends.grpc.fault import logged_fault
from naiad.frontends.header_forward import HeaderForwarder
from naiad.request.call import Buffer, InferCall
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse
from naiad.request.service import InferenceService, InferHandle
from naiad.wire.proto.infer_request import ProtoTemplates, decode_infer
from naiad.wire.proto.infer_response import ProtoResponseTemplates, encode_infer


@dataclass(frozen=True, slots=True)
class InferContext:
    """What all inferences of a listener are answered with."""

    service: InferenceService
    forwarder: HeaderForwarder
    is_forwarding: bool
    templates: ProtoTemplates
    response_templates: ProtoResponseTemplates
    client_of: ClientReader | None = None

    def infer(self, call: InferCall, sink: ResponseSink, transport: CallTransport) -> InferHandle:
        """Put the question to the service, with the deadline of the RPC, its client where they share models fairly, and the
        metadata that is to be forwarded. Raises as it does.
        """
        call.deadline_ns = transport.deadline_ns
        if self.client_of is not None:
            call.client = self.client_of(transport.metadata)
        if self.is_forwarding:
            call.parameters = {**call.parameters, **self.forwarder.parameters(transport.metadata)}
        try:
            return self.service.infer(call, sink)
        except InferenceServerError:
            if self.service.is_draining():
                raise unavailable(SHUTTING_DOWN) from None
            raise


class InferRpc:
    """See the module."""

    __slots__ = ("_context", "_handle", "_has_message", "_model_name", "_response", "_transport")

    def __init__(self, context: InferContext, transport: CallTransport) -> None:
        self._context = context
        self._transport = transport
        self._handle: InferHandle | None = None
        self._response: InferResponse | None = None
        self._has_message = False
        self._model_name = ""

    def on_message(self, message: Buffer) -> None:
        """See `Rpc.on_message`: there is exactly one."""
        if self._has_message:
            raise internal("ModelInfer takes one request message, a second one came")
        self._has_message = True
        context = self._context
        call, _ = decode_infer(message, context.templates)
        self._model_name = call.model_name
        try:
            self._handle = context.infer(call, self, self._transport)
        except DecoupledModelError:
            raise unimplemented("ModelInfer RPC doesn't support models with decoupled transaction policy") from None

    def on_half_close(self) -> None:
        """See `Rpc.on_half_close`."""
        if not self._has_message:
            raise internal("ModelInfer takes one request message, none came")

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """See `Rpc.on_cancel`."""
        if self._handle is not None:
            self._handle.cancel()

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`: there is exactly one response, sent when the request has ended."""
        if response is not None:
            if self._response is not None:
                self.fail(internal(f"expected a single response, got 2, from model '{self._model_name}'"))
                return
            self._response = response
        if not is_final:
            return
        if self._response is None:
            self.fail(internal(f"expected a single response, got 0, from model '{self._model_name}'"))
            return
        try:
            message = encode_infer(self._response, self._context.response_templates)
        except InferenceServerError as error:
            self._transport.finish(error)
            return
        except Exception:
            self._transport.finish(logged_fault())
            return
        self._transport.send(message)
        self._transport.finish()

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._transport.finish(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: a single response is bounded by itself."""
        return True
