"""A gRPC connection of the server and an HTTP/2 client in one process, without sockets and without waiting."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ngh2
from fake_loop import FakeLoop
from fake_transport import FakeTransport

from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.connection.connection import GrpcConnection
from naiad.frontends.grpc.options import GrpcOptions
from naiad.frontends.grpc.site import GrpcSite


def framed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


class Recorded:
    """An RPC that notes what happens to it; `replies` are sent for each message."""

    def __init__(self, transport: Any, on_message: Callable[[Any, bytes], None] | None = None) -> None:
        self.transport = transport
        self.messages: list[bytes] = []
        self.is_half_closed = False
        self.cancels: list[Any] = []
        self._answer = on_message

    def on_message(self, message: Any) -> None:
        self.messages.append(bytes(message))
        if self._answer is not None:
            self._answer(self, bytes(message))

    def on_half_close(self) -> None:
        self.is_half_closed = True

    def on_cancel(self, error: Any) -> None:
        self.cancels.append(error)


def echo(rpc: Recorded, message: bytes) -> None:
    rpc.transport.send([message])
    rpc.transport.finish()


class GrpcPair:
    """`rpcs` are the RPCs that were started. Paths: /t.T/Echo answers each message and ends, /t.T/Wait notes only; /t.T/Told
    does, too, and is of those that end at the drain by themselves and whose senders wait for a client with anything unread.
    """

    def __init__(
        self, options: GrpcOptions | None = None, settings: dict[ngh2.Setting, int] | None = None, **configuration: Any
    ) -> None:
        self.loop = FakeLoop()
        self.rpcs: list[Recorded] = []
        methods = [
            RpcMethod(b"/t.T/Echo", "inference", lambda transport: self._start(transport, echo)),
            RpcMethod(b"/t.T/Many", "inference", lambda transport: self._start(transport, None)),
            RpcMethod(b"/t.T/Wait", "health", lambda transport: self._start(transport, None)),
            RpcMethod(b"/t.T/Told", "health", lambda transport: self._start(transport, None), 1, ends_at_drain=True),
        ]
        self.site = GrpcSite(methods, options or GrpcOptions(), self.loop)  # type: ignore[arg-type]
        self.connection = GrpcConnection(self.site)
        self.transport = FakeTransport(self.connection)
        self.client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(**configuration))
        self.client.initiate_connection(settings)
        self.events: list[Any] = []
        self.pump()

    def _start(self, transport: Any, answer: Any) -> Recorded:
        self.rpcs.append(Recorded(transport, answer))
        return self.rpcs[-1]

    def pump(self) -> None:
        """Carry bytes both ways until nothing moves."""
        while True:
            self.loop.turn()
            data = self.client.data_to_send()
            if data:
                self.transport.feed(data)
            self.loop.turn()
            written, self.transport.written = self.transport.written, b""
            if written:
                self.client.receive_data(written)
                self.events += self.client.events()
            if not data and not written:
                return

    def call(self, path: bytes = b"/t.T/Echo", body: bytes | None = None, *, is_end: bool = True, **more: bytes) -> int:
        """Begin a call, with `body` as it is; `more` are further header fields, _ for -. Return its stream's id."""
        fields = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"a", b"te": b"trailers"}
        fields[b"content-type"] = b"application/grpc"
        for name, value in more.items():
            key = name.replace("_", "-").encode()
            fields[b":method" if key == b"method" else key] = value
        stream_id = self.client.send_request(list(fields.items()), end_stream=body is None and is_end)
        if body is not None:
            self.client.send_data(stream_id, body, end_stream=is_end)
        self.pump()
        return stream_id

    def body(self, stream_id: int) -> bytes:
        return b"".join(e.data for e in self.events if isinstance(e, ngh2.DataReceived) and e.stream_id == stream_id)

    def fields(self, stream_id: int) -> dict[bytes, bytes]:
        """Return the header and trailer fields of a response, trailers last."""
        found: dict[bytes, bytes] = {}
        for event in self.events:
            if isinstance(event, (ngh2.ResponseReceived, ngh2.TrailersReceived)) and event.stream_id == stream_id:
                found.update(dict(event.headers))
        return found

    def status(self, stream_id: int) -> int:
        """Return the call's grpc-status, -1 when it has none yet."""
        return int(self.fields(stream_id).get(b"grpc-status", b"-1"))

    def is_closed(self, stream_id: int) -> bool:
        return any(isinstance(e, ngh2.StreamClosed) and e.stream_id == stream_id for e in self.events)
