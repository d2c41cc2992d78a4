"""One request of HTTP/1.1 as the carrier of one RPC.

Owns the call's state: its messages both ways, its deadline, its single end, what its client hasn't read. Implements
`call.CallTransport`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from starlette.types import Receive, Send

from naiad.errors import InferenceServerError, internal, unavailable, unimplemented
from naiad.frontends.access import AccessRules
from naiad.frontends.grpc.call import MAX_UNREAD_BYTES, SHUTTING_DOWN, Metadata, Rpc
from naiad.frontends.grpc.deadline import deadline_ns, start_deadline
from naiad.frontends.grpc.fault import logged_fault
from naiad.frontends.grpc.site import LARGE_PACKED_BYTES, GrpcSite
from naiad.frontends.grpc.status import STATUS_OF_CODE
from naiad.frontends.grpc.web.framing import MediaTypes, TextDecoder, encode_text, trailers_frame
from naiad.request.call import Buffer
from naiad.wire.grpc.framing import FramedMessage, MessageReader, prefix
from naiad.wire.grpc.head import CODINGS, CallHead, check_named, status_fields

# A multiple of three, so that base64 has no padding but at an end; short enough to be encoded and copied at once.
_PIECE_BYTES = 192 * 1024
# So many messages are taken before others have their turn.
_MESSAGES_AT_ONCE = 16


class WebCall:
    """See the module. `serve` is the whole call."""

    __slots__ = (
        "_deadline",
        "_decoder",
        "_head",
        "_http_access",
        "_is_held",
        "_is_over",
        "_max_unread_bytes",
        "_outgoing",
        "_reader",
        "_resumed",
        "_rpc",
        "_site",
        "_types",
        "_unread_bytes",
        "_waiting",
        "_woken",
        "deadline_ns",
        "has_ended",
        "metadata",
    )

    def __init__(self, site: GrpcSite, http_access: AccessRules, head: CallHead, metadata: Metadata, types: MediaTypes) -> None:
        self._site = site
        self._http_access = http_access
        self._head = head
        self.metadata = metadata
        self._types = types
        self._decoder = TextDecoder() if types.request_is_text else None
        self._reader = MessageReader(site.options.max_message_size)
        self._rpc: Rpc | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.deadline_ns: int | None = None
        self._is_held = False
        self._resumed = asyncio.Event()
        # Frames that are yet to be written, and what tells the writer of them.
        self._outgoing: deque[memoryview] = deque()
        self._unread_bytes = 0
        self._woken = asyncio.Event()
        self._waiting: list[Callable[[], None]] = []
        self._max_unread_bytes = MAX_UNREAD_BYTES
        self.has_ended = False
        # Whether the client is gone: nothing is written any more.
        self._is_over = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Run the RPC from its head to its trailers, or until the client is gone."""
        self._site.web_calls.add(self)
        reading = asyncio.ensure_future(self._read(receive))
        try:
            self._begin()
            await self._write(send)
        finally:
            self._site.web_calls.discard(self)
            self._close()
            reading.cancel()
            await asyncio.wait([reading])

    def send(self, message: Sequence[Buffer]) -> None:
        """See `CallTransport.send`."""
        if not self.has_ended:
            self._put(b"".join((prefix(sum(map(len, message)), is_compressed=False), *message)))

    def finish(self, error: InferenceServerError | None = None) -> None:
        """See `CallTransport.finish`."""
        if self.has_ended:
            return
        self.has_ended = True
        self._cancel_deadline()
        self._rpc = None
        status, text, retry_after_s = (
            (0, "", 0) if error is None else (STATUS_OF_CODE[error.code], error.message, error.retry_after_s)
        )
        self._put(trailers_frame(status_fields(status, text, retry_after_s)))

    def fail(self, error: InferenceServerError) -> None:
        """End the call from the server's side: the RPC is told."""
        rpc = self._rpc
        if not self.has_ended:
            self.finish(error)
            if rpc is not None:
                rpc.on_cancel(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `CallTransport.when_writable`."""
        if self.has_ended or self._unread_bytes < self._max_unread_bytes:
            return True
        self._waiting.append(callback)
        return False

    def hold_requests(self, is_held: bool) -> None:
        """See `CallTransport.hold_requests`."""
        self._is_held = is_held
        self._resumed.set()

    def _begin(self) -> None:
        """Start the RPC that the head asks for, or refuse it."""
        head, site = self._head, self._site
        try:
            if site.has_stopped:
                raise unavailable(SHUTTING_DOWN)
            if head.error is not None:
                raise head.error
            self._check_not_packed_whole()
            method = site.method(head.path, self.metadata)
            refusal = self._http_access.check(method.category, self.metadata)
            if refusal is not None:
                raise unavailable(refusal.text)
            self._max_unread_bytes = method.max_unread_bytes
            if head.timeout_s is not None:
                self._deadline = start_deadline(site.loop, head.timeout_s, self.fail)
                self.deadline_ns = deadline_ns(head.timeout_s)
            if not self.has_ended:
                self._rpc = method.start(self)
        except InferenceServerError as error:
            self.finish(error)
        except Exception:
            self.fail(logged_fault())

    def _check_not_packed_whole(self) -> None:
        coding = dict(self.metadata).get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity":
            raise unimplemented(
                f"content-encoding is '{coding[:50].decode('latin-1')}', which a gRPC-Web body can't have: pack its messages "
                "(grpc-encoding) or none"
            )

    async def _read(self, receive: Receive) -> None:
        """Take the body, then wait whether the client goes away."""
        try:
            while not self._is_over:
                await self._take(await receive())
        except InferenceServerError as error:
            self.fail(error)
        except Exception:
            self.fail(logged_fault())

    async def _take(self, event: MutableMapping[str, Any]) -> None:
        """Take a piece of the body. Raises InferenceServerError for what isn't allowed."""
        if event["type"] == "http.disconnect":
            self._close()
            return
        data: bytes = event.get("body", b"")
        if self.has_ended:
            return
        if self._decoder is not None:
            data = self._decoder.feed(data)
        for number, message in enumerate(self._reader.feed(data), 1):
            await self._receive(message)
            if number % _MESSAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
        if not event.get("more_body", False):
            self._half_close()

    def _half_close(self) -> None:
        if self._decoder is not None:
            self._decoder.end()
        if not self._reader.is_between_messages:
            raise internal("the request ended within a message: its length says more than the body holds")
        if self._rpc is not None:
            self._rpc.on_half_close()

    async def _receive(self, message: FramedMessage) -> None:
        """Give the RPC a message, unpacked, as soon as it takes one. May raise InferenceServerError."""
        while self._is_held and self._rpc is not None:
            self._resumed.clear()
            await self._resumed.wait()
        if self._rpc is None:
            return
        data = message.data
        if message.is_compressed:
            check_named(self._head.coding)
            data = (
                self._site.unpack(data, self._head.coding)
                if len(data) <= LARGE_PACKED_BYTES
                else await self._unpacked_elsewhere(data)
            )
        if self._rpc is not None:
            self._rpc.on_message(data)

    async def _unpacked_elsewhere(self, data: Buffer) -> Buffer:
        done: asyncio.Future[Buffer | InferenceServerError] = self._site.loop.create_future()

        def tell(result: Buffer | InferenceServerError) -> None:
            if not done.done():
                done.set_result(result)

        self._site.codec_thread.submit(lambda: self._site.unpack(data, self._head.coding), tell)
        result = await done
        if isinstance(result, InferenceServerError):
            try:
                raise result
            finally:
                # Its traceback holds this frame: the frame must not hold it, or both stay.
                del result
        return result

    async def _write(self, send: Send) -> None:
        """Write the answer as it comes, no faster than the client reads."""
        while not (self._outgoing or self._is_over):
            self._woken.clear()
            await self._woken.wait()
        headers = [(b"content-type", self._types.response_type), (b"grpc-accept-encoding", CODINGS)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        is_last = False
        while not (is_last or self._is_over):
            if not self._outgoing:
                self._woken.clear()
                await self._woken.wait()
                continue
            piece = self._next_piece()
            is_last = self.has_ended and not self._outgoing
            body = encode_text(piece) if self._types.response_is_text else piece
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            self._unread_bytes -= len(piece)
            self._wake_if_writable()
            if len(piece) == _PIECE_BYTES:
                await asyncio.sleep(0)

    def _put(self, frame: bytes) -> None:
        self._outgoing.append(memoryview(frame))
        self._unread_bytes += len(frame)
        self._woken.set()

    def _next_piece(self) -> bytes:
        """Return what is to be written next: several small frames, or a part of a large one."""
        parts: list[memoryview] = []
        room, outgoing = _PIECE_BYTES, self._outgoing
        while room and outgoing:
            part = outgoing[0][:room]
            room -= len(part)
            parts.append(part)
            if len(part) == len(outgoing[0]):
                outgoing.popleft()
            else:
                outgoing[0] = outgoing[0][len(part) :]
        return b"".join(parts)

    def _close(self) -> None:
        """The call is over, by its end or because its client is gone."""
        self._is_over = True
        rpc, self._rpc = self._rpc, None
        has_ended, self.has_ended = self.has_ended, True
        self._cancel_deadline()
        self._outgoing.clear()
        if not has_ended and rpc is not None:
            rpc.on_cancel(None)
        self._woken.set()
        self._resumed.set()
        self._wake_if_writable()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _wake_if_writable(self) -> None:
        if self.has_ended or self._unread_bytes < self._max_unread_bytes:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()
