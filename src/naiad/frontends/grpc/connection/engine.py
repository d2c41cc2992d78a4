"""HTTP/2 without I/O: libnghttp2, through ngh2, behind the few operations that a gRPC server needs.

Owns every use of ngh2 (a young library: nothing else may import it) and the limits against abuse that libnghttp2 keeps.
Framing, HPACK, flow control and the state of streams are the library's. Knows nothing of gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import ngh2

from naiad.request.call import Buffer

Fields = Iterable[tuple[bytes, bytes]]
ReceivedFields = tuple[tuple[bytes, bytes], ...]

NO_ERROR, ENHANCE_YOUR_CALM = 0, 11

STREAM_WINDOW_BYTES = 1 << 20
CONNECTION_WINDOW_BYTES = 8 << 20
MAX_FRAME_BYTES = 1 << 20
MAX_HEADER_LIST_BYTES = 16384

_CONFIGURATION = ngh2.Configuration(
    auto_window_update=False,
    max_inbound_header_list_size=65536,
    max_inbound_header_count=256,
    max_continuations=16,
)


class Http2Error(Exception):
    """The connection is beyond saving; the text says why."""


class EngineHandler(Protocol):
    """Who is told what a client sent. Called from within `Http2Engine.receive` and `output`."""

    def on_request(self, stream_id: int, fields: ReceivedFields, is_end: bool) -> None:
        """A request's head is complete."""

    def on_data(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """A piece of a request's body came; `consume` must be called for it once."""

    def on_stream_end(self, stream_id: int) -> None:
        """The client sends nothing further on the stream: it ended with trailers."""

    def on_closed(self, stream_id: int) -> None:
        """The stream is over on both sides, or was reset by either."""

    def on_settings(self) -> None:
        """The client's settings came: it speaks HTTP/2, and its windows may be larger."""

    def on_window(self) -> None:
        """The client takes more data on some stream."""

    def on_ping(self) -> None:
        """The client sent a PING; its answer is queued."""

    def on_ping_answer(self) -> None:
        """A ping of ours came back."""


class Http2Engine:
    """One server-side HTTP/2 connection. Operations on streams that are over are ignored."""

    __slots__ = ("_connection", "_handler", "has_failed")

    def __init__(self, handler: EngineHandler, max_concurrent_streams: int) -> None:
        self._handler = handler
        self._connection = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        self._connection.initiate_connection(
            {
                ngh2.Setting.MAX_CONCURRENT_STREAMS: max_concurrent_streams,
                ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                ngh2.Setting.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
            }
        )
        self._connection.set_local_window_size(CONNECTION_WINDOW_BYTES)
        self.has_failed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be received or sent: the socket may be closed."""
        connection = self._connection
        return self.has_failed or not (connection.want_read or connection.want_write)

    def receive(self, data: bytes) -> None:
        """Take bytes of the client and tell the handler. Raises Http2Error; then only `output` is of use."""
        try:
            self._connection.receive_data(data)
        except ngh2.NGH2Error as error:
            self._tell()
            self.has_failed = True
            raise Http2Error(str(error)) from error
        self._tell()

    def output(self, size: int) -> bytes:
        """Return up to `size` bytes for the client, b"" when its windows are full or nothing waits."""
        if self.has_failed:
            return b""
        try:
            data = self._connection.data_to_send(size)
        except ngh2.NGH2Error:
            self.has_failed = True
            return b""
        self._tell()
        return data

    def respond(self, stream_id: int, fields: Fields, is_end: bool = False) -> None:
        """Queue a response's head."""
        try:
            self._connection.send_response(stream_id, fields, end_stream=is_end)
        except ngh2.NGH2Error:
            return

    def send_data(self, stream_id: int, data: Buffer) -> None:
        """Queue a piece of a response's body; it is copied."""
        try:
            self._connection.send_data(stream_id, data)
        except ngh2.NGH2Error:
            return

    def send_trailers(self, stream_id: int, fields: Fields) -> None:
        """Queue the trailers, which end the response."""
        try:
            self._connection.send_trailers(stream_id, fields)
        except ngh2.NGH2Error:
            return

    def reset(self, stream_id: int, error_code: int) -> None:
        """Queue an RST_STREAM."""
        try:
            self._connection.reset_stream(stream_id, error_code)
        except ngh2.NGH2Error:
            return

    def consume(self, size: int, stream_id: int) -> None:
        """Let the client send `size` bytes more, which is how many of the stream's have been taken."""
        try:
            self._connection.acknowledge_received_data(size, stream_id)
        except (ngh2.NGH2Error, ValueError):
            # The connection is over: nobody waits for its windows.
            return

    def queued_bytes(self, stream_id: int | None = None) -> int:
        """Return how much of one stream's responses, or of all, waits for the client's windows or for `output`."""
        return self._connection.queued_body_size(stream_id)

    def ping(self) -> None:
        """Queue a PING."""
        try:
            self._connection.ping(b"naiad-ka")
        except ngh2.NGH2Error:
            return

    def announce_end(self) -> None:
        """Queue the GOAWAY that says: begin no new stream here."""
        try:
            self._connection.send_shutdown_notice()
        except ngh2.NGH2Error:
            return

    def end(self, error_code: int, text: str = "") -> None:
        """Queue the last GOAWAY; streams that are open are over."""
        try:
            if text:
                self._connection.send_goaway(error_code, debug_data=text.encode())
            self._connection.terminate_connection(error_code)
        except ngh2.NGH2Error:
            return

    def _tell(self) -> None:
        handler = self._handler
        # Told apart by exact type: the classes have no subclasses, and `isinstance` for each would cost more.
        events: list[Any] = self._connection.events()
        for event in events:
            kind = type(event)
            if kind is ngh2.DataReceived:
                handler.on_data(event.stream_id, event.data, event.end_stream)
            elif kind is ngh2.RequestReceived:
                handler.on_request(event.stream_id, event.headers, event.end_stream)
            elif kind is ngh2.StreamClosed:
                handler.on_closed(event.stream_id)
            elif kind is ngh2.WindowUpdated:
                handler.on_window()
            elif kind is ngh2.PingReceived:
                handler.on_ping()
            elif kind is ngh2.TrailersReceived:
                handler.on_stream_end(event.stream_id)
            elif kind is ngh2.PingAcknowledged:
                handler.on_ping_answer()
            elif kind is ngh2.SettingsReceived:
                handler.on_settings()
