"""Nested calls: what a model asked of other models, and the answers on their way back.

Owns one call from its frame to its end. A call that nobody holds any more is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Protocol

from naiad.worker.api.response import InferenceResponse
from naiad.worker.channel import Channel
from naiad.worker.frames import FLAG_FINAL, Frame, Kind, pack

# Credit is given back in parts, so that a frame isn't sent for each response.
_CREDIT_STEP = 4


class CallState:
    """What has arrived of a call. Frames are added with the channel's mutex held, taken without. `wake` is called when there
    is something new; `is_over`: nobody takes frames any more.
    """

    __slots__ = ("arrived", "is_over", "wake")

    def __init__(self) -> None:
        self.arrived: deque[Frame] = deque()
        self.is_over = False
        self.wake: Callable[[], object] | None = None

    def take(self, frame: Frame) -> None:
        """Add a response."""
        self.arrived.append(frame)
        self.tell()

    def tell(self) -> None:
        """Wake the coroutine that waits, if one does."""
        wake = self.wake
        if wake is not None:
            wake()

    def has_news(self) -> bool:
        """Return whether there is a response, or will be none."""
        return self.is_over or bool(self.arrived)

    def end(self) -> list[Frame]:
        """Take no frames any more; return those that are left, each to one caller only."""
        self.is_over = True
        left: list[Frame] = []
        with suppress(IndexError):  # Another thread may be faster.
            while self.arrived:
                left.append(self.arrived.popleft())
        return left


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
            self._channel.wait(self._state.has_news)
            response = self._next()
            if response is not None:
                yield response

    async def responses_async(self) -> AsyncIterator[InferenceResponse]:
        """See `Call.responses_async`. The running loop reads the socket while it waits."""
        loop = asyncio.get_running_loop()
        self._channel.read_on(loop)
        try:
            while not self._has_ended:
                await self._arrival(loop)
                response = self._next()
                if response is not None:
                    yield response
        finally:
            self._channel.leave(loop)

    def cancel(self) -> None:
        """See `Call.cancel`."""
        if not self._has_ended:
            self._has_ended = True
            self._reader.forget_call(self._id)
            self._state.tell()
            # The server's answer to this wakes the threads that wait.
            self._channel.post(pack(Kind.CALL_CANCEL, self._id))

    def __del__(self) -> None:
        self.cancel()

    async def _arrival(self, loop: asyncio.AbstractEventLoop) -> None:
        state = self._state
        with self._channel.mutex:
            if state.has_news():
                return
            arrived = asyncio.Event()

            def wake() -> None:
                try:
                    loop.call_soon_threadsafe(arrived.set)
                except RuntimeError:
                    # The loop is closed: what waits there never goes on, and must not be kept by this.
                    state.wake = None

            state.wake = wake
        try:
            await arrived.wait()
        finally:
            state.wake = None

    def _next(self) -> InferenceResponse | None:
        """Return the next response, None when the call was given up meanwhile."""
        try:
            frame = self._state.arrived.popleft()
        except IndexError:
            return None
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
