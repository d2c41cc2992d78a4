"""Nested calls: what a model asked of other models, and the answers on their way back.

Owns one call from its frame to its end. A call that nobody holds any more is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Protocol

from naiad.worker.api.response import InferenceResponse
from naiad.worker.channel import Channel
from naiad.worker.frames import FLAG_FINAL, Frame, Kind, pack

# Credit is given back in parts, so that a frame isn't sent for each response.
_CREDIT_STEP = 4


class CallState:
    """What has arrived of a call. Changed with the channel's mutex held; `wake` is called after each change."""

    __slots__ = ("arrived", "is_final", "wake")

    def __init__(self) -> None:
        self.arrived: deque[Frame] = deque()
        self.is_final = False
        self.wake: Callable[[], object] | None = None

    def take(self, frame: Frame) -> None:
        """Add a response."""
        self.arrived.append(frame)
        self.is_final = bool(frame.flags & FLAG_FINAL)
        if self.wake is not None:
            self.wake()

    def has_something(self) -> bool:
        """Return whether a response is there."""
        return bool(self.arrived)


class ResponseReader(Protocol):
    """Who makes responses out of frames."""

    def read_response(self, frame: Frame) -> InferenceResponse | None:
        """Return the response in a CALL_RESPONSE, None when it only ends the call."""

    def forget_call(self, call_id: int) -> None:
        """Take no more responses to that call; their blocks are released."""


class NestedCall:
    """See `naiad.worker.api.host.Call`."""

    def __init__(self, call_id: int, state: CallState, channel: Channel, reader: ResponseReader) -> None:
        self._id = call_id
        self._state = state
        self._channel = channel
        self._reader = reader
        self._uncredited = 0
        self._has_ended = False

    def responses(self) -> Iterator[InferenceResponse]:
        """See `Call.responses`."""
        while not self._has_ended:
            self._channel.wait(self._state.has_something)
            yield self._next()

    async def responses_async(self) -> AsyncIterator[InferenceResponse]:
        """See `Call.responses_async`. The running loop reads the socket while it waits."""
        loop = asyncio.get_running_loop()
        self._channel.read_on(loop)
        try:
            while not self._has_ended:
                await self._arrival(loop)
                yield self._next()
        finally:
            self._channel.leave(loop)

    def cancel(self) -> None:
        """See `Call.cancel`."""
        if not self._has_ended:
            self._has_ended = True
            self._reader.forget_call(self._id)
            self._channel.post(pack(Kind.CALL_CANCEL, self._id))

    def __del__(self) -> None:
        self.cancel()

    async def _arrival(self, loop: asyncio.AbstractEventLoop) -> None:
        state = self._state
        with self._channel.mutex:
            if state.arrived:
                return
            arrived = asyncio.Event()
            state.wake = partial(loop.call_soon_threadsafe, arrived.set)
        try:
            await arrived.wait()
        finally:
            state.wake = None

    def _next(self) -> InferenceResponse:
        frame = self._state.arrived.popleft()
        if frame.flags & FLAG_FINAL:
            self._has_ended = True
            self._reader.forget_call(self._id)
        else:
            self._give_credit()
        response = self._reader.read_response(frame)
        return InferenceResponse([]) if response is None else response

    def _give_credit(self) -> None:
        self._uncredited += 1
        if self._uncredited >= _CREDIT_STEP:
            self._channel.post(pack(Kind.CALL_CREDIT, self._id, value=self._uncredited))
            self._uncredited = 0
