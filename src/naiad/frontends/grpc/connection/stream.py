"""One HTTP/2 stream as the carrier of one RPC.

Owns the call's state: message framing and packing both ways, its deadline, its single end, what the client may still send.
Implements `call.CallTransport`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from naiad.errors import Code, InferenceServerError, internal
from naiad.frontends.grpc.call import MAX_UNREAD_BYTES, Metadata, Rpc
from naiad.frontends.grpc.deadline import deadline_ns, start_deadline
from naiad.frontends.grpc.fault import logged_fault
from naiad.frontends.grpc.site import LARGE_PACKED_BYTES
from naiad.frontends.grpc.status import STATUS_OF_CODE
from naiad.request.call import Buffer
from naiad.wire.grpc.framing import FramedMessage, MessageReader, prefix
from naiad.wire.grpc.head import CODINGS, CallHead, check_named, status_fields

if TYPE_CHECKING:
    from naiad.frontends.grpc.connection.connection import GrpcConnection

# Empty and tiny frames cost what full ones do: a message may come in so many of them.
_MAX_TINY_FRAMES = 65536
_TINY_FRAME_BYTES = 256
# Packing this much at the hardest level takes a millisecond.
_LARGE_TO_PACK_BYTES = 16384
# One piece costs less than several, until copying it costs more.
_JOINED_BYTES = 4096

_STARTED: Metadata = ((b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", CODINGS))
# By what responses are packed with, the one that is preferred first.
_PACKED: dict[str, Metadata] = {coding: (*_STARTED, (b"grpc-encoding", coding.encode())) for coding in ("gzip", "deflate")}
_ENDED_WELL: Metadata = ((b"grpc-status", b"0"),)


class GrpcStream:
    """See the module. `begin` starts the RPC; `take`, `half_close` and `close` are the connection's."""

    __slots__ = (
        "_backlog",
        "_connection",
        "_deadline",
        "_end_to_send",
        "_head",
        "_id",
        "_is_held",
        "_is_started",
        "_is_unpacking",
        "_max_unread_bytes",
        "_packing",
        "_reader",
        "_rpc",
        "_tiny_frames",
        "_to_pack",
        "_unconsumed",
        "_waiting",
        "deadline_ns",
        "ends_at_drain",
        "has_ended",
        "is_half_closed",
        "metadata",
    )

    def __init__(self, connection: GrpcConnection, stream_id: int, head: CallHead, metadata: Metadata) -> None:
        self._connection = connection
        self._id = stream_id
        self._head = head
        self.metadata = metadata
        self._reader = MessageReader(connection.site.options.max_message_size)
        self._rpc: Rpc | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.deadline_ns: int | None = None
        self._waiting: list[Callable[[], None]] = []
        self._unconsumed = 0
        self._tiny_frames = 0
        self._is_started = False
        self._is_held = False
        # While a large message is unpacked elsewhere, those behind it wait here, and the client runs out of window.
        self._is_unpacking = False
        self._backlog: deque[FramedMessage] = deque()
        self.has_ended = False
        self.is_half_closed = False
        # What responses are packed with, "" for not at all.
        self._packing = ""
        # Large responses are packed elsewhere: those behind one wait here, and so does the end.
        self._to_pack: deque[bytes] = deque()
        self._end_to_send: tuple[InferenceServerError | None] | None = None
        self._max_unread_bytes = MAX_UNREAD_BYTES
        self.ends_at_drain = False

    def begin(self) -> None:
        """Start the RPC that the head asks for, or refuse it."""
        head = self._head
        if head.http_status != 200:
            self._refuse_http(head.http_status)
            return
        if head.error is not None:
            self.finish(head.error)
            return
        try:
            method = self._connection.site.method(head.path, self.metadata)
            self._max_unread_bytes, self.ends_at_drain = method.max_unread_bytes, method.ends_at_drain
            if head.timeout_s is not None:
                self._deadline = start_deadline(self._connection.site.loop, head.timeout_s, self.fail)
                self.deadline_ns = deadline_ns(head.timeout_s)
            if method.category == "inference" and self._connection.site.options.response_compression_level:
                self._packing = next((coding for coding in _PACKED if coding in head.accepted), "")
            if not self.has_ended:
                self._rpc = method.start(self)
        except InferenceServerError as error:
            self.finish(error)
        except Exception:
            self.fail(logged_fault())

    def take(self, data: bytes) -> None:
        """Take a piece of the request's body."""
        size = len(data)
        if size and not self._unconsumed:
            self._connection.received.append(self)
        self._unconsumed += size
        if self.has_ended:
            return
        if size < _TINY_FRAME_BYTES and not self._count_tiny():
            return
        try:
            for message in self._reader.feed(data):
                self._tiny_frames = 0
                self._receive(message)
        except InferenceServerError as error:
            self.fail(error)
        except Exception:
            self.fail(logged_fault())

    def half_close(self) -> None:
        """The client sends nothing further."""
        self.is_half_closed = True
        if self.has_ended or self._rpc is None or self._is_unpacking:
            return
        try:
            if not self._reader.is_between_messages:
                raise internal("the request ended within a message: its length says more than the body holds")
            self._rpc.on_half_close()
        except InferenceServerError as error:
            self.fail(error)
        except Exception:
            self.fail(logged_fault())

    def close(self) -> None:
        """The stream is over, by its end or by a reset, or its connection is."""
        rpc, self._rpc = self._rpc, None
        has_ended, self.has_ended = self.has_ended, True
        self._to_pack.clear()
        self._cancel_deadline()
        if not has_ended and rpc is not None:
            rpc.on_cancel(None)
        # What was held back counts against the whole connection until it is given back, also when its stream is over.
        self._give_back()
        self._wake()

    def send(self, message: Sequence[Buffer]) -> None:
        """See `CallTransport.send`."""
        if self.has_ended or self._end_to_send is not None:
            return
        if not self._packing:
            self._write(message, is_packed=False)
        elif self._to_pack or sum(map(len, message)) > _LARGE_TO_PACK_BYTES:
            self._to_pack.append(b"".join(message))
            if len(self._to_pack) == 1:
                self._pack_next()
        else:
            self._write([self._pack(message)], is_packed=True)

    def _write(self, message: Sequence[Buffer], is_packed: bool) -> None:
        engine, stream_id = self._connection.engine, self._id
        if not self._is_started:
            self._start()
        size = len(message[0]) if len(message) == 1 else sum(map(len, message))
        if size <= _JOINED_BYTES:
            engine.send_data(stream_id, b"".join((prefix(size, is_packed), *message)))
        else:
            engine.send_data(stream_id, prefix(size, is_packed))
            for buffer in message:
                engine.send_data(stream_id, buffer)
        self._connection.flush_soon()

    def finish(self, error: InferenceServerError | None = None) -> None:
        """See `CallTransport.finish`."""
        if self.has_ended or self._end_to_send is not None:
            return
        if self._to_pack:
            self._end_to_send = (error,)
            self._rpc = None
        else:
            self._end(error)

    def _end(self, error: InferenceServerError | None) -> None:
        self.has_ended = True
        self._cancel_deadline()
        self._rpc = None
        trailers = (
            _ENDED_WELL if error is None else status_fields(STATUS_OF_CODE[error.code], error.message, error.retry_after_s)
        )
        engine = self._connection.engine
        if self._is_started:
            engine.send_trailers(self._id, trailers)
        else:
            engine.respond(self._id, (*_STARTED, *trailers), is_end=True)
        if not self.is_half_closed:
            self._connection.reset_when_sent(self._id)
        self._connection.flush_soon()

    def fail(self, error: InferenceServerError) -> None:
        """End the call from the server's side: the RPC is told."""
        rpc = self._rpc
        if not self.has_ended:
            self._to_pack.clear()
            self._end(error)
            if rpc is not None:
                rpc.on_cancel(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `CallTransport.when_writable`."""
        if self.has_ended or self.is_writable():
            return True
        self._waiting.append(callback)
        self._connection.waiting.add(self)
        return False

    def is_writable(self) -> bool:
        """Return whether little enough waits for the client."""
        connection = self._connection
        is_read = not connection.is_paused and connection.engine.queued_bytes(self._id) < self._max_unread_bytes
        return is_read and not self._to_pack

    @property
    def is_packing(self) -> bool:
        """Whether a response waits to be packed."""
        return bool(self._to_pack)

    def wake_if_writable(self) -> None:
        """Call those who wait for the client, when it keeps up again."""
        if self.has_ended or self.is_writable():
            self._wake()

    def hold_requests(self, is_held: bool) -> None:
        """See `CallTransport.hold_requests`."""
        self._is_held = is_held
        if not (is_held or self._is_unpacking):
            self._give_back()

    def give_back_received(self) -> None:
        """Let the client send as much again as was received, unless it is held back."""
        if self._unconsumed and not (self._is_held or self._is_unpacking):
            self._connection.engine.consume(self._unconsumed, self._id)
            self._unconsumed = 0

    def _start(self) -> None:
        self._is_started = True
        self._connection.engine.respond(self._id, _PACKED.get(self._packing, _STARTED))

    def _give_back(self) -> None:
        if self._unconsumed:
            self._connection.engine.consume(self._unconsumed, self._id)
            self._unconsumed = 0
            self._connection.flush_soon()

    def _receive(self, message: FramedMessage) -> None:
        """Give the RPC a message, unpacked, after those before it. May raise InferenceServerError."""
        if self._rpc is None:
            return
        if self._is_unpacking:
            self._backlog.append(message)
            return
        if not message.is_compressed:
            self._rpc.on_message(message.data)
            return
        check_named(self._head.coding)
        if len(message.data) <= LARGE_PACKED_BYTES:
            self._rpc.on_message(self._unpacked(message.data))
            return
        self._connection.site.codec_thread.submit(lambda: self._unpacked(message.data), self._take_unpacked)
        self._is_unpacking = True

    def _pack_next(self) -> None:
        message = [self._to_pack[0]]
        try:
            self._connection.site.codec_thread.submit(lambda: self._pack(message), self._take_packed)
        except InferenceServerError as error:
            self.fail(error)

    def _pack(self, message: Sequence[Buffer]) -> bytes:
        return self._connection.site.pack(message, self._packing)

    def _take_packed(self, result: bytes | InferenceServerError) -> None:
        """Send a response that was packed elsewhere, and go on with what came behind it."""
        if self.has_ended:
            return
        if isinstance(result, InferenceServerError):
            self.fail(result)
            return
        self._to_pack.popleft()
        self._write([result], is_packed=True)
        if self._to_pack:
            self._pack_next()
        elif self._end_to_send is not None:
            self._end(self._end_to_send[0])
        else:
            self.wake_if_writable()

    def _unpacked(self, data: Buffer) -> Buffer:
        return self._connection.site.unpack(data, self._head.coding)

    def _take_unpacked(self, result: Buffer | InferenceServerError) -> None:
        """Go on with a message that was unpacked elsewhere, and with what came behind it."""
        self._is_unpacking = False
        if self.has_ended or self._rpc is None:
            self._give_back()
            return
        if isinstance(result, InferenceServerError):
            # Not raised again: its traceback would hold this frame, this frame the error, and both what was unpacked so far.
            self.fail(result)
            self._give_back()
            return
        try:
            self._rpc.on_message(result)
            while self._backlog and not self._is_unpacking:
                self._receive(self._backlog.popleft())
        except InferenceServerError as error:
            self.fail(error)
        except Exception:
            self.fail(logged_fault())
        if not self._is_unpacking:
            self.hold_requests(self._is_held)
            if self.is_half_closed:
                self.half_close()

    def _count_tiny(self) -> bool:
        self._tiny_frames += 1
        if self._tiny_frames <= _MAX_TINY_FRAMES:
            return True
        self.fail(
            InferenceServerError(Code.RESOURCE_EXHAUSTED, f"a message in more than {_MAX_TINY_FRAMES} tiny frames is refused")
        )
        return False

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse_http(self, status: int) -> None:
        """Answer what is no gRPC call with a status of HTTP."""
        self.has_ended = True
        self._connection.engine.respond(self._id, ((b":status", b"%d" % status),), is_end=True)
        if not self.is_half_closed:
            self._connection.reset_when_sent(self._id)
        self._connection.flush_soon()

    def _wake(self) -> None:
        self._connection.waiting.discard(self)
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
