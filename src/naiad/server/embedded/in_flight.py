"""One inference of the program that the server is embedded in: from its call to its end, and the two ways to wait for it.

Owns the step between the event loop, where answers arrive, and the threads and loops of the program. Doesn't own what a call is
made of (`models`).
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from naiad.errors import Code, InferenceServerError
from naiad.request.call import InferCall
from naiad.request.response import InferResponse
from naiad.request.service import InferenceService, InferHandle

_MOST_UNREAD = 16
"""A model waits when so many of its responses haven't been asked for."""


class Receiver(Protocol):
    """Who gets the answers. Called on the loop thread; must not block."""

    def receive(self, response: InferResponse) -> None:
        """Take a response."""

    def end(self, error: InferenceServerError | None) -> None:
        """Take the end; nothing comes after it."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""


class InFlight:
    """See `ResponseSink`. Loop thread only. `on_end` is called once, after the receiver's end."""

    def __init__(self, receiver: Receiver, on_end: Callable[[InFlight], None]) -> None:
        self._receiver = receiver
        self._on_end = on_end
        self._handle: InferHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def begin(self, core: InferenceService, call: InferCall, timeout_s: float | None) -> None:
        """Hand the call to the server; it is given up after `timeout_s` seconds."""
        if self._has_ended:
            return
        if timeout_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout_s, self._expire, call.model_name, timeout_s)
        try:
            self._handle = core.infer(call, self)
        except InferenceServerError as error:
            self.fail(error)

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if self._has_ended:
            return
        if response is not None:
            self._receiver.receive(response)
        if is_final:
            self._end(None)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        if not self._has_ended:
            self._end(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._has_ended or self._receiver.when_writable(callback)

    def give_up(self, error: InferenceServerError) -> None:
        """End with `error`, and let the server give the request up. Does nothing after the end."""
        self.fail(error)
        if self._handle is not None:
            self._handle.cancel()

    def _expire(self, model: str, timeout_s: float) -> None:
        text = f"model '{model}' has not answered within the timeout of {timeout_s} s"
        self.give_up(InferenceServerError(Code.DEADLINE_EXCEEDED, text))

    def _end(self, error: InferenceServerError | None) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._receiver.end(error)
        self._on_end(self)


class OneAnswer:
    """See `Receiver`: the one response of a call, as a future, which the program may cancel."""

    def __init__(self) -> None:
        self.future: Future[InferResponse | None] = Future()
        self._response: InferResponse | None = None

    def receive(self, response: InferResponse) -> None:
        """See `Receiver.receive`."""
        self._response = response

    def end(self, error: InferenceServerError | None) -> None:
        """See `Receiver.end`."""
        if not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._response)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `Receiver.when_writable`: there is one answer at most."""
        return True


_Item = InferResponse | InferenceServerError | None


class ManyAnswers:
    """See `Receiver`: hands each answer on with `put`, from the loop thread; counts those that the program hasn't taken."""

    def __init__(self, put: Callable[[_Item], None], post: Callable[[Callable[[], None]], None]) -> None:
        self._put = put
        self._post = post
        self._unread = 0
        self._waiting: Callable[[], None] | None = None

    def receive(self, response: InferResponse) -> None:
        """See `Receiver.receive`."""
        self._unread += 1
        self._put(response)

    def end(self, error: InferenceServerError | None) -> None:
        """See `Receiver.end`."""
        self._put(error)
        self._let_go()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `Receiver.when_writable`."""
        if self._unread < _MOST_UNREAD:
            return True
        self._waiting = callback
        return False

    def taken(self) -> None:
        """Say that the program has taken one; any thread."""
        self._post(self._count_taken)

    def _count_taken(self) -> None:
        self._unread -= 1
        if self._unread < _MOST_UNREAD:
            self._let_go()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()


class ThreadAnswers(ManyAnswers):
    """Answers for a thread that waits for each."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        super().__init__(self._queue.put, post)

    def __iter__(self) -> Iterator[InferResponse]:
        """Yield the responses, blocking for each. Raises the error that ends them."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, InferenceServerError):
                raise item
            self.taken()
            yield item


class LoopAnswers(ManyAnswers):
    """Answers for a coroutine of the loop that runs now."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        super().__init__(self._put_there, post)

    async def __aiter__(self) -> AsyncIterator[InferResponse]:
        """Yield the responses. Raises the error that ends them."""
        while (item := await self._queue.get()) is not None:
            if isinstance(item, InferenceServerError):
                raise item
            self.taken()
            yield item

    def _put_there(self, item: _Item) -> None:
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
