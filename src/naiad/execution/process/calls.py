"""Calls of other models that a worker's model makes.

Owns each call from its CALL frame to its last CALL_RESPONSE. A call goes the way of every request: checks, scheduler,
statistics. Its tensors come out of the caller's memory and its answers go into it, one copy each way. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from naiad.errors import InferenceServerError, unavailable
from naiad.execution.process.codec.decode import Buffer, parse
from naiad.execution.process.codec.encode import BlockLayout
from naiad.execution.process.codec.outputs import WorkerOutputs
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.execution.process.life.process import WorkerProcess
from naiad.memory.arena import ArenaFull, Block
from naiad.request.call import CallInput, CallOutput, InferCall
from naiad.request.request import InferRequest
from naiad.request.response import InferResponse
from naiad.request.service import InferHandle
from naiad.worker.frames import FLAG_DECOUPLED, FLAG_FINAL, NO_BLOCK, Frame, Kind, pack

_SCALARS = (str, int, bool, float)
_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "version": (str,),
    "id": (str,),
    "inputs": (list,),
    "outputs": (list,),
    "parameters": (dict,),
    "correlation_id": (int, str),
    "flags": (int,),
    "timeout_us": (int,),
    "priority": (int,),
    "caller": (int,),
}

# So many responses may be in the caller's memory unread.
_WINDOW_RESPONSES = 16


class NestedCalls:
    """The calls of one worker. `callers` returns the requests in whose service a call is made: the one whose id the model
    gave, or all that run when that is 0.
    """

    def __init__(
        self, host: WorkerHost, process: WorkerProcess, outputs: WorkerOutputs, callers: Callable[[int], list[InferRequest]]
    ) -> None:
        self._host = host
        self._process = process
        self._outputs = outputs
        self._callers = callers
        self._calls: dict[int, _Call] = {}

    def take(self, frame: Frame) -> bool:
        """Take a CALL, CALL_CREDIT or CALL_CANCEL; return False for other kinds. May raise BrokenWorkerError."""
        if frame.kind == Kind.CALL:
            self._begin(frame)
        elif frame.kind == Kind.CALL_CREDIT:
            call = self._calls.get(frame.id)
            if call is not None:
                call.add_credit(frame.value)
        elif frame.kind == Kind.CALL_CANCEL:
            call = self._calls.pop(frame.id, None)
            if call is not None:
                call.cancel()
                # Another thread may wait for a response.
                self._process.send_later(pack(Kind.CALL_RESPONSE, frame.id, flags=FLAG_FINAL))
        else:
            return False
        return True

    def __len__(self) -> int:
        return len(self._calls)

    def awaited_models(self) -> set[str]:
        """Return the names of the models whose answers the running batch may wait for."""
        return {call.model for call in self._calls.values() if call.callers}

    def caller_cancelled(self) -> None:
        """A request was cancelled: calls that are made for none but cancelled ones are, too."""
        for call in list(self._calls.values()):
            if call.callers and all(request.is_cancelled for request in call.callers):
                call.cancel()

    def cancel_all(self) -> None:
        """The worker is gone: nobody waits for the answers."""
        calls, self._calls = self._calls, {}
        for call in list(calls.values()):  # Each takes itself out.
            call.cancel()

    def _begin(self, frame: Frame) -> None:
        data, lease = self._outputs.borrow(frame)
        try:
            message = parse(frame.tail)
            infer_call = _infer_call(message, data, bool(frame.flags & FLAG_DECOUPLED))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenWorkerError(f"a call can't be read: {type(error).__name__}: {error}") from error
        if frame.id in self._calls:
            raise BrokenWorkerError(f"call {frame.id} is made a second time")
        call = _Call(frame.id, infer_call.model_name, self._process, self._calls)
        call.callers = self._callers(message.get("caller", 0))
        self._calls[frame.id] = call
        del data
        call.begin(self._host, infer_call)
        del infer_call
        self._outputs.settle(frame, lease)


class _Call:
    """One call under way: the sink of the callee's responses."""

    def __init__(self, number: int, model: str, process: WorkerProcess, calls: dict[int, _Call]) -> None:
        self.callers: list[InferRequest] = []
        self.model = model
        self._number = number
        self._process = process
        self._calls = calls
        self._handle: InferHandle | None = None
        self._ahead = 0
        self._on_writable: list[Callable[[], None]] = []

    def begin(self, host: WorkerHost, call: InferCall) -> None:
        """Put the call to the server, unless nobody could ever answer it."""
        if self.callers and host.waits.is_stuck(self.model):
            text = "every instance of it waits for the answer to a call that leads back here: give it more instances"
            self.fail(unavailable(f"a call of model '{self.model}' would wait for ever: {text}"))
            return
        try:
            infer = host.infer if self.callers and host.infer is not None else host.service.infer
            self._handle = infer(call, self)
        except InferenceServerError as error:
            self.fail(error)

    def cancel(self) -> None:
        """Give the call up."""
        if self._handle is not None:
            self._handle.cancel()

    def add_credit(self, count: int) -> None:
        """The caller has read so many responses."""
        self._ahead = max(self._ahead - count, 0)
        if self._ahead < _WINDOW_RESPONSES:
            self._wake()

    # See `ResponseSink`.

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if self._calls.get(self._number) is not self:
            return  # Given up, or failed for want of memory: what comes later is nobody's.
        flags = FLAG_FINAL if is_final else 0
        if response is None:
            self._end()
            self._process.send(pack(Kind.CALL_RESPONSE, self._number, flags=flags))
            return
        try:
            tail, block = self._encode(response)
        except (ArenaFull, OSError) as full:
            self.fail(unavailable(f"the answer of model '{response.model_name}' doesn't fit: {full}"))
            self.cancel()
            return
        if is_final:
            self._end()
        self._ahead += 1
        self._process.send(pack(Kind.CALL_RESPONSE, self._number, tail, flags=flags, block=block))

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        if not self._end():
            return  # It is given up: nobody waits for the error.
        tail = orjson.dumps({"error": [error.code.value, error.message]})
        self._process.send(pack(Kind.CALL_RESPONSE, self._number, tail, flags=FLAG_FINAL))

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        if self._ahead < _WINDOW_RESPONSES or self._calls.get(self._number) is not self:
            return True
        self._on_writable.append(callback)
        return False

    def _encode(self, response: InferResponse) -> tuple[bytes, Block]:
        layout = BlockLayout()
        outputs = [layout.add(output.name, output.datatype.name, output.array) for output in response.outputs]
        message: dict[str, Any] = {"outputs": outputs, "model": response.model_name, "version": response.model_version}
        if response.parameters:
            message["parameters"] = dict(response.parameters)
        block = NO_BLOCK
        if layout.size:
            block = self._process.arena.allocate(layout.size)
            layout.copy_to(self._process.arena.view(block))
        return orjson.dumps(message), block

    def _end(self) -> bool:
        """Let the call be over; return False when it was before."""
        is_open = self._calls.pop(self._number, None) is not None
        self._wake()
        return is_open

    def _wake(self) -> None:
        callbacks, self._on_writable = self._on_writable, []
        for callback in callbacks:
            callback()


def _infer_call(message: dict[str, Any], data: Buffer, is_decoupled: bool) -> InferCall:
    """Return the call that a CALL frame asks for, with views of its block."""
    _check(message)
    flags = message.get("flags", 0)
    view = memoryview(data)  # type: ignore[arg-type]
    call = InferCall(message["model"], message.get("version", ""), message.get("id", ""))
    call.inputs = [
        CallInput(name, datatype, shape, view[offset : offset + size])
        for name, datatype, shape, offset, size in message["inputs"]
    ]
    call.outputs = [CallOutput(name) for name in message.get("outputs", ())]
    call.parameters = message.get("parameters", {})
    call.sequence_id = message.get("correlation_id", 0)
    call.is_sequence_start, call.is_sequence_end = bool(flags & 1), bool(flags & 2)
    call.timeout_us = message.get("timeout_us", 0)
    call.priority = message.get("priority", 0)
    call.takes_many_responses = is_decoupled
    return call


def _check(message: dict[str, Any]) -> None:
    """Raise TypeError or ValueError for what no CALL holds."""
    for name, value in message.items():
        if name in _TYPES and type(value) not in _TYPES[name]:
            raise TypeError(f"its {name} is {value!r:.200}")
    texts, numbers = list(message.get("outputs", ())), []
    for name, datatype, shape, offset, size in message["inputs"]:
        texts += [name, datatype]
        numbers += [*shape, offset, size]
    if not all(type(text) is str for text in texts):
        raise TypeError("a name in it is no text")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a number in it is none")
    if not all(type(value) in _SCALARS for value in message.get("parameters", {}).values()):
        raise TypeError("a parameter in it is no plain value")
