"""`Runtime`: the worker around a model: what the frames do to it, and what it says back.

Owns the open requests, the calls under way, both sides of the shared memory, and the implementation of `Host`. Doesn't own the
order of work (`loop`), the layout of tensors (`batches`) or the socket (`channel`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from naiad.memory.arena import Arena, ArenaFull, ArenaLimits, Block
from naiad.memory.lease import Lease, Leases
from naiad.memory.mapping import Mapping
from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor
from naiad.worker.batches import BlockWriter, ResponseWriter, as_json, received_tensors
from naiad.worker.calls import CallState, NestedCall
from naiad.worker.channel import Channel
from naiad.worker.frames import (
    FLAG_DECOUPLED,
    FLAG_FINAL,
    NO_BLOCK,
    PROGRESS,
    Frame,
    Kind,
    pack,
    pack_blocks,
    unpack_blocks,
)
from naiad.worker.messages import CallMessage, InitializeMessage, RequestMessage, ResponseMessage

WINDOW_RESPONSES = 16
"""So many responses to one request may be on their way unread; the sender waits for credit then."""

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_WORK = frozenset((Kind.LOAD, Kind.COMPLETE_CONFIG, Kind.INITIALIZE, Kind.CHECK_READY, Kind.FINALIZE, Kind.EXECUTE))
# What is smaller is copied out of the server's block at once, which is then free.
_COPY_BYTES = 1 << 16
# An arena larger than this shrinks when there was no work for so long.
_LARGE_ARENA_BYTES = 8 << 20
_TRIM_SECONDS = 2.0


class OpenRequest:
    """A request that the model hasn't ended. `credit` is how many responses it may send before it must wait."""

    __slots__ = ("credit", "is_cancelled", "wanted")

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = wanted
        self.credit = WINDOW_RESPONSES
        self.is_cancelled = False

    def take_credit(self) -> bool:
        """Take the right to send a response and return True, or return False: not yet. Called with the mutex held."""
        if self.credit > 0:
            self.credit -= 1
            return True
        return self.is_cancelled


def end_process(error: BaseException | None) -> None:
    """End the worker: the server is gone, and so is what the worker is for, or nothing it says can be read any more."""
    if error is not None:
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
    os._exit(0 if error is None else 1)


class Runtime:
    """See the module, and `worker.api.host.Host` for what the model's objects call. For `on_end` see `Channel`."""

    def __init__(
        self,
        control: socket.socket,
        descriptors: socket.socket,
        limits: ArenaLimits,
        on_end: Callable[[BaseException | None], None] = end_process,
    ) -> None:
        self.channel = Channel(control, self._dispatch, on_end)
        self.work: deque[Frame] = deque()
        self.on_work: Callable[[], None] | None = None
        self.open: dict[int, OpenRequest] = {}
        self.is_decoupled = False
        self.is_iterative = False
        self.version_directory = ""
        self.can_call = False
        self._is_fork = False
        self._next_unopened = 0
        self._cancelled_early: set[int] = set()
        self._descriptors = descriptors
        self._arena = Arena(limits, self._announce, self._retire)
        self._large_bytes = max(_LARGE_ARENA_BYTES, limits.first_bytes)
        self._mapping = Mapping(writable=True)
        self._leases = Leases(self._release_returned)
        self._calls: dict[int, CallState] = {}
        self._answers: dict[int, Frame | None] = {}
        self._last_id = 0
        self._takers: dict[int, Callable[[Frame], None]] = {
            Kind.RELEASE: self._take_release,
            Kind.CALL_RESPONSE: self._take_call_response,
            Kind.CANCEL: self._take_cancel,
            Kind.CREDIT: self._take_credit,
            Kind.ANSWER: self._take_answer,
            Kind.SEGMENT: self._map,
            Kind.SEGMENT_GONE: self._unmap,
        }
        self._progress = memoryview(bytearray(PROGRESS.size))
        self._responses = ResponseWriter("", (), lambda text: self.log("WARNING", text))

    def begin(self, name: str, message: InitializeMessage) -> None:
        """Take what an instance of model `name` starts with."""
        self.is_decoupled = message["is_decoupled"]
        self.is_iterative = message["is_iterative"]
        if message["progress"] is not None:
            segment, offset = message["progress"]
            self._progress = self._mapping.view(segment, offset, PROGRESS.size)
        self._responses = ResponseWriter(name, message["outputs"], lambda text: self.log("WARNING", text))

    # What the loop needs.

    def note_begun(self, frame: Frame) -> None:
        """Let the server know, should this process die, that the batch has begun."""
        PROGRESS.pack_into(self._progress, 0, frame.id)

    def next_work(self) -> Frame:
        """Wait for the next frame that asks for work."""
        work = self.work
        while not work and not self.channel.wait(lambda: bool(work), self.trim_after_s()):
            self.trim()
        return work.popleft()

    def say(self, kind: Kind, frame_id: int, message: Any = None, **fields: Any) -> None:
        """Send a frame with a JSON tail."""
        self.channel.send(pack(kind, frame_id, b"" if message is None else as_json(message), **fields))

    def lend(self, frame: Frame) -> Lease:
        """Return the lease of a frame's block, which may be empty; unless settled alone, the block is released when its last
        user is gone.
        """
        view = self._mapping.view(frame.segment, frame.offset, frame.size) if frame.size else memoryview(b"")
        return self._leases.lend(frame.segment, frame.offset, view)

    def open_requests(self, first_id: int, messages: Sequence[RequestMessage]) -> None:
        """Take the requests of a batch as open."""
        for index, message in enumerate(messages):
            self.open[first_id + index] = OpenRequest(message.get("outputs", ()))
        end = self._next_unopened = first_id + len(messages)
        if self._cancelled_early:
            for request_id in range(first_id, end):
                self.open[request_id].is_cancelled |= request_id in self._cancelled_early
            self._cancelled_early = {request_id for request_id in self._cancelled_early if request_id >= end}

    def reschedule(self, request_id: int) -> None:
        """Let go of a request that the model wants again; does nothing when it has ended."""
        if self.open.pop(request_id, None) is not None:
            self.say(Kind.RESCHEDULE, request_id)

    def message_of(self, response: InferenceResponse, wanted: Sequence[str], writer: BlockWriter) -> ResponseMessage:
        """Return the message of a response; see `ResponseWriter.message`."""
        return self._responses.message(response, wanted, writer)

    def trim_after_s(self) -> float | None:
        """Return after how long without work memory is to be given back, None when there is none to give."""
        return _TRIM_SECONDS if self._arena.size_bytes > self._large_bytes else None

    def trim(self) -> None:
        """Give memory back that isn't in use."""
        with self.channel.mutex:
            self._arena.trim()

    def abandon(self) -> None:
        """Be of no use in a process that the model has forked: the socket and the memory are its parent's."""
        self._is_fork = True
        self.open = {}
        self.can_call = False
        self.channel.abandon()
        self._descriptors.close()

    # Host.

    def send_response(self, request_id: int, response: InferenceResponse | None, is_final: bool) -> None:
        """See `Host.send_response`."""
        request = self.open.get(request_id)
        if request is None:
            return
        tail, block = b"", NO_BLOCK
        if response is not None and not request.is_cancelled:
            tail, block = self._sendable(request, response)
        if not (tail or is_final):
            return
        # Not before: when the above raises, the request is as it was.
        if is_final:
            self.open.pop(request_id, None)
        self.channel.send(pack(Kind.RESPONSE, request_id, tail, flags=FLAG_FINAL if is_final else 0, block=block))

    def _sendable(self, request: OpenRequest, response: InferenceResponse) -> tuple[bytes, Block]:
        """Return the tail and the block of a response, once the request may send it; no tail when it was cancelled."""
        writer = BlockWriter()
        message = self._responses.message(response, request.wanted, writer)
        tail = as_json(message)
        self.channel.wait(request.take_credit)
        if request.is_cancelled:
            return b"", NO_BLOCK
        try:
            return tail, self.write(writer)
        except TritonModelException as error:
            return as_json({"error": ("INTERNAL", str(error))}), NO_BLOCK

    def drop_request(self, request_id: int) -> None:
        """See `Host.drop_request`."""
        if self.open.pop(request_id, None) is not None:
            text = (
                "the model let go of the request's response sender without the final flag: the request would never have ended"
            )
            self.channel.post(pack(Kind.RESPONSE, request_id, as_json({"error": ["INTERNAL", text]}), flags=FLAG_FINAL))

    def is_cancelled(self, request_id: int) -> bool:
        """See `Host.is_cancelled`."""
        self.channel.poll()
        request = self.open.get(request_id)
        return request is not None and request.is_cancelled

    def call(self, request: InferenceRequest, *, is_decoupled: bool) -> NestedCall:
        """See `Host.call`."""
        if not self.can_call:
            raise TritonModelException(
                "other models can be called only while requests are served: not in initialize or finalize, nor in a process "
                "that the model has forked"
            )
        writer = BlockWriter()
        message: CallMessage = {**request._message(), "inputs": [writer.add(tensor) for tensor in request.inputs()]}
        tail = _message_tail(message)
        block = self.write(writer)
        state = CallState()
        call_id = self._next_id()
        self._calls[call_id] = state
        self.channel.send(pack(Kind.CALL, call_id, tail, flags=FLAG_DECOUPLED if is_decoupled else 0, block=block))
        return NestedCall(call_id, state, self.channel, self)

    def query(self, name: str, arguments: dict[str, Any]) -> Any:
        """See `Host.query`."""
        if self._is_fork:
            raise TritonModelException("a process that the model has forked can't ask the server anything")
        tail = _message_tail({"name": name, "arguments": arguments})
        question = self._next_id()
        self._answers[question] = None
        self.channel.send(pack(Kind.QUERY, question, tail))
        self.channel.wait(lambda: self._answers[question] is not None)
        frame = self._answers.pop(question)
        answer = json.loads(frame.tail) if frame is not None else {}
        if "error" in answer:
            raise TritonModelException(answer["error"][1])
        return answer.get("value")

    def change_metric(self, message: dict[str, Any]) -> None:
        """See `Host.change_metric`."""
        self.channel.post(pack(Kind.METRIC, 0, as_json(message)))

    def log(self, level: str, message: str) -> None:
        """See `Host.log`."""
        self.channel.post(pack(Kind.LOG, 0, as_json({"level": level, "message": message})))

    # What nested calls need.

    def read_response(self, frame: Frame) -> InferenceResponse | None:
        """See `ResponseReader.read_response`."""
        if not frame.tail:
            return None
        message: ResponseMessage = json.loads(frame.tail)
        return InferenceResponse._received(message, self._received(frame, message))

    def forget_call(self, call_id: int) -> None:
        """See `ResponseReader.forget_call`."""
        state = self._calls.pop(call_id, None)
        if state is not None:
            self._release(state.end())

    def _received(self, frame: Frame, message: ResponseMessage) -> list[Tensor]:
        outputs = message.get("outputs", [])
        lease = self.lend(frame)
        if frame.size > _COPY_BYTES:
            tensors = received_tensors(outputs, lease.array)
            is_free = lease.settle()
        else:
            tensors = received_tensors(outputs, lease.array.copy())
            is_free = True
        if is_free:
            self._release([frame])
        return tensors

    def _release_returned(self) -> None:
        """Tell the server of the blocks that the model has let go. Takes no lock: it may run in a garbage collection."""
        returned = self._leases.returned
        with suppress(IndexError):  # Another thread may be faster.
            while returned:
                self.channel.post(pack(Kind.RELEASE, 0, pack_blocks([returned.popleft()])))

    def _release(self, frames: Sequence[Frame] | deque[Frame]) -> None:
        blocks = [(frame.segment, frame.offset) for frame in frames if frame.size]
        if blocks:
            self.channel.post(pack(Kind.RELEASE, 0, pack_blocks(blocks)))

    # Memory.

    def write(self, writer: BlockWriter) -> Block:
        """Copy what `writer` holds into a block; waits for room while the server still holds blocks.

        Raises TritonModelException when there can't be room.
        """
        if not writer.size:
            return NO_BLOCK
        block = self._allocate(writer.size)
        try:
            writer.copy_to(self._arena.view(block))
        except BaseException:
            with self.channel.mutex:
                self._arena.release(block.segment, block.offset)
            raise
        return block

    def _allocate(self, size: int) -> Block:
        """Return a block, when there is room for it. Raises TritonModelException when there can't be."""
        with self.channel.mutex:
            block = self._try_allocate(size)
        if block is not None:
            return block
        got: list[Block] = []

        def is_there() -> bool:
            block = self._try_allocate(size)
            if block is not None:
                got.append(block)
            return bool(got)

        self.channel.wait(is_there)
        return got[0]

    def _try_allocate(self, size: int) -> Block | None:
        """Return a block, None while the server still holds what would make room. The mutex is held."""
        try:
            return self._arena.allocate(size)
        except ArenaFull as error:
            if error.is_hopeless or not self._arena.block_count:
                raise TritonModelException(str(error)) from None
            return None
        except OSError as error:
            raise TritonModelException(f"no shared memory for {size} bytes: {error.strerror}") from error

    def _announce(self, segment: int, fd: int, size: int) -> None:
        frame = pack(Kind.SEGMENT, segment, block=Block(segment, 0, size))
        self.channel.send_with_descriptor(frame, self._descriptors, fd)

    def _retire(self, segment: int) -> None:
        self.channel.post(pack(Kind.SEGMENT_GONE, segment))

    # Frames.

    def _dispatch(self, frame: Frame) -> None:
        """Take a frame, with the channel's mutex held."""
        if frame.kind in _WORK:
            self.work.append(frame)
            if self.on_work is not None:
                self.on_work()
        else:
            self._takers[frame.kind](frame)

    def _take_release(self, frame: Frame) -> None:
        for segment, offset in unpack_blocks(frame.tail):
            self._arena.release(segment, offset)

    def _take_call_response(self, frame: Frame) -> None:
        state = self._calls.get(frame.id)
        if state is None:
            self._release([frame])
        else:
            state.take(frame)
            if state.is_over:  # Given up by another thread just now.
                self._release(state.end())

    def _take_answer(self, frame: Frame) -> None:
        self._answers[frame.id] = frame

    def _map(self, frame: Frame) -> None:
        _, fds, _, _ = socket.recv_fds(self._descriptors, 1, 1, _CLOSE_ON_EXEC)
        if not fds:
            raise OSError(f"segment {frame.id} of the server's memory can't be had: this process may open no more files")
        self._mapping.add(frame.id, fds[0], frame.size)

    def _unmap(self, frame: Frame) -> None:
        self._mapping.remove(frame.id)

    def _take_cancel(self, frame: Frame) -> None:
        if frame.id >= self._next_unopened:
            # Its EXECUTE still waits for its turn.
            self._cancelled_early.add(frame.id)
        request = self.open.get(frame.id)
        if request is not None:
            request.is_cancelled = True

    def _take_credit(self, frame: Frame) -> None:
        request = self.open.get(frame.id)
        if request is not None:
            request.credit += frame.value

    def _next_id(self) -> int:
        with self.channel.mutex:
            self._last_id += 1
            return self._last_id


def _message_tail(message: Any) -> bytes:
    """Return the tail of what a model says. Raises TritonModelException when it can't be said."""
    try:
        return as_json(message)
    except (TypeError, ValueError) as error:
        raise TritonModelException(f"it can't be sent: {error}") from error
