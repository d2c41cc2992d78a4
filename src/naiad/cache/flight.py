"""Requests that are the same and in flight together: one of them runs, the others wait for its answer.

Owns who waits and who runs. Doesn't own the cache nor what makes requests the same.
"""

from __future__ import annotations

from collections.abc import Callable

from naiad.errors import InferenceServerError
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse


class Flight:
    """The requests that wait, in their order, each cancelled on its own. Loop thread only.

    The leader isn't among them once it runs: who calls `take_leader` gives it to a scheduler.
    """

    __slots__ = ("_on_left", "key", "place", "waiting")

    def __init__(self, place: tuple[bytes, int, int], on_left: Callable[[], None]) -> None:
        self.place = place
        self.key = place[0]
        self.waiting: dict[InferRequest, None] = {}
        self._on_left = on_left

    def join(self, request: InferRequest) -> None:
        """Let `request` wait too."""
        self.waiting[request] = None
        request.on_cancel = self._leave

    def take_leader(self) -> InferRequest | None:
        """Return the first that waits, which does so no longer; None when nobody is left."""
        for request in self.waiting:
            del self.waiting[request]
            request.on_cancel = None
            return request
        return None

    def take_all(self) -> list[InferRequest]:
        """Return all that wait, in order; none does afterwards."""
        taken = list(self.waiting)
        self.waiting.clear()
        for request in taken:
            request.on_cancel = None
        return taken

    def _leave(self, request: InferRequest) -> None:
        del self.waiting[request]
        self._on_left()


class LeaderSink:
    """See `ResponseSink`. Stands before the sink of a request that runs for others, and tells how it ends."""

    __slots__ = ("_on_answer", "_on_failure", "_sink")

    def __init__(
        self,
        sink: ResponseSink,
        on_answer: Callable[[InferResponse | None], None],
        on_failure: Callable[[InferenceServerError], None],
    ) -> None:
        self._sink = sink
        self._on_answer = on_answer
        self._on_failure = on_failure

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`. The others see the response first: sinks may change it."""
        if is_final:
            self._on_answer(response)
        self._sink.send(response, is_final)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._sink.fail(error)
        self._on_failure(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._sink.when_writable(callback)
