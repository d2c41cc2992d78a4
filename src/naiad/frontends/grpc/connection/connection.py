"""One gRPC connection: bytes between a socket and the HTTP/2 engine, and its streams.

Owns reading, writing with back-pressure, and the connection's end. What a stream carries is `stream`'s, pings and age are
`keepalive`'s. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from naiad.frontends.grpc.connection.engine import NO_ERROR, Http2Engine, Http2Error, ReceivedFields
from naiad.frontends.grpc.connection.keepalive import Caretaker
from naiad.frontends.grpc.connection.stream import GrpcStream

if TYPE_CHECKING:
    from naiad.frontends.grpc.site import GrpcSite

_WRITE_BYTES = 1 << 20
# A client that doesn't answer pings knows by then that its server drains.
_KNOWS_AFTER_SECONDS = 1.0
_CLOSES_WITHIN_SECONDS = 5.0

_log = logging.getLogger("naiad.grpc")


class GrpcConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, site: GrpcSite) -> None:
        self.site = site
        self.streams: dict[int, GrpcStream] = {}
        # Those whose senders wait for the client.
        self.waiting: set[GrpcStream] = set()
        # Those that received something in this turn: their windows are given back together.
        self.received: list[GrpcStream] = []
        self.is_paused = False
        self.is_draining = False
        self._transport: asyncio.Transport | None = None
        self._is_receiving = False
        self._is_flush_due = False
        self._is_window_open = False
        self._to_reset: set[int] = set()
        self._is_end_known = False
        self._caretaker = Caretaker(self, site.options.keep_alive, site.loop)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self.engine = Http2Engine(self, self.site.options.max_concurrent_streams)
        if not self.site.admit(self):
            self._transport.abort()
            return
        self._caretaker.start()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`: every call of the connection is over."""
        self._transport = None
        self._caretaker.stop()
        self.site.forget(self)
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.close()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._caretaker.has_received()
        self._is_receiving = True
        try:
            self.engine.receive(data)
        except Http2Error as error:
            _log.debug("a gRPC connection broke the rules of HTTP/2: %s", error)
            self._close_now()
            return
        finally:
            self._is_receiving = False
        for stream in self.received:
            stream.give_back_received()
        self.received.clear()
        self.flush()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`: HTTP/2 knows no half-closed connection."""
        return False

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.is_paused = False
        self.flush()
        self._wake_streams()

    def flush_soon(self) -> None:
        """Write what calls have sent at the end of this turn of the loop, together with what else comes until then."""
        self._caretaker.has_sent()
        if not (self._is_flush_due or self._is_receiving):
            self._is_flush_due = True
            self.site.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what the engine has, as far as the socket takes it."""
        self._is_flush_due = False
        transport = self._transport
        if transport is None:
            return
        while not self.is_paused:
            output = self.engine.output(_WRITE_BYTES)
            if output:
                transport.write(output)
            elif not self._reset_sent():
                break
        if self._is_window_open:
            self._is_window_open = False
            self._wake_streams()
        if self.engine.is_over or (self._is_end_known and not self.streams):
            self._finish()

    def reset_when_sent(self, stream_id: int) -> None:
        """Tell the client to send nothing further on a stream whose answer is complete, once it has gone out."""
        self._to_reset.add(stream_id)

    def drain(self) -> None:
        """Tell the client to begin no further calls (GOAWAY), and end with the last one that is open.

        Calls that it began before it knew are answered: its answer to a ping says that it knows.
        """
        if not self.is_draining:
            self.is_draining = True
            self.engine.announce_end()
            self.engine.ping()
            self.site.loop.call_later(_KNOWS_AFTER_SECONDS, self._is_told)
            self.flush()

    def end(self, error_code: int = NO_ERROR, text: str = "") -> None:
        """End the connection and what runs for its calls."""
        self.engine.end(error_code, text)
        self._close_now()

    def abort(self) -> None:
        """Cut the connection off."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_answering(self) -> bool:
        """Whether a part of an answer waits for the client, or a call is yet to end that ends at the drain."""
        transport = self._transport
        if transport is None:
            return False
        return transport.get_write_buffer_size() > 0 or any(
            not stream.has_ended if stream.ends_at_drain else self.engine.queued_bytes(stream_id) > 0 or stream.is_packing
            for stream_id, stream in self.streams.items()
        )

    def on_request(self, stream_id: int, fields: ReceivedFields, is_end: bool) -> None:
        """See `EngineHandler`."""
        stream = self.streams[stream_id] = GrpcStream(self, stream_id, self.site.head(fields), fields)
        stream.is_half_closed = is_end
        stream.begin()
        if is_end:
            stream.half_close()

    def on_data(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """See `EngineHandler`."""
        stream = self.streams.get(stream_id)
        if stream is None:
            self.engine.consume(len(data), stream_id)
            return
        stream.is_half_closed = stream.is_half_closed or is_end
        stream.take(data)
        if is_end:
            stream.half_close()

    def on_stream_end(self, stream_id: int) -> None:
        """See `EngineHandler`."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.half_close()

    def on_closed(self, stream_id: int) -> None:
        """See `EngineHandler`."""
        self._to_reset.discard(stream_id)
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            stream.close()

    def on_settings(self) -> None:
        """See `EngineHandler`: a larger initial window opens those of all streams."""
        self._caretaker.has_introduced_itself()
        self._is_window_open = True

    def on_window(self) -> None:
        """See `EngineHandler`."""
        self._is_window_open = True

    def on_ping(self) -> None:
        """See `EngineHandler`."""
        self._caretaker.has_been_pinged()

    def on_ping_answer(self) -> None:
        """See `EngineHandler`: as a sign of life, what was received has been counted already."""
        if self.is_draining:
            self._is_end_known = True

    def _reset_sent(self) -> bool:
        """Reset the streams whose answers are out; return whether there is output of it."""
        sent = [stream_id for stream_id in self._to_reset if not self.engine.queued_bytes(stream_id)]
        for stream_id in sent:
            self._to_reset.discard(stream_id)
            self.engine.reset(stream_id, NO_ERROR)
        return bool(sent)

    def _is_told(self) -> None:
        self._is_end_known = True
        self.flush()

    def _wake_streams(self) -> None:
        for stream in list(self.waiting):
            stream.wake_if_writable()

    def _close_now(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.write(self.engine.output(_WRITE_BYTES))
            transport.close()
            # A client that doesn't read would keep it, and its calls, for ever.
            self.site.loop.call_later(_CLOSES_WITHIN_SECONDS, transport.abort)

    def _finish(self) -> None:
        if not self.engine.is_over:
            self.engine.end(NO_ERROR)
        self._close_now()
