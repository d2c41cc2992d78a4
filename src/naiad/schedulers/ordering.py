"""Responses in the order of their requests, whichever instance ends first.

Owns the responses that came too early. Doesn't own requests: it stands between each responder and its sink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from naiad.errors import InferenceServerError
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse


class ResponseOrder:
    """Lets the oldest open request answer, and holds what the others have to say until it is their turn.

    Errors wait like responses do: a request that failed or was cancelled answers in its place. Loop thread only.
    """

    __slots__ = ("_is_releasing", "_open")

    def __init__(self) -> None:
        self._open: deque[_OrderedSink] = deque()
        self._is_releasing = False

    def track(self, request: InferRequest) -> None:
        """Make `request` the last in the order. It must not have ended."""
        request.responder.redirect(self._append)

    def _append(self, sink: ResponseSink) -> ResponseSink:
        ordered = _OrderedSink(self, sink)
        self._open.append(ordered)
        return ordered

    def when_oldest_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`, of the oldest open request. No request waits for the turn itself: a model that
        answers a batch from its end would never come to the beginning.
        """
        return self._open[0].sink.when_writable(callback)

    def release(self) -> None:
        """Deliver what may go out now. A sink may cause further answers while it takes one: they queue up behind it."""
        if self._is_releasing:
            return
        self._is_releasing = True
        while self._open and self._open[0].held:
            if self._open[0].deliver_next():
                self._open.popleft()
        self._is_releasing = False


class _OrderedSink:
    """See `ResponseSink`. What one request has said and nobody has heard yet, in front of the sink it goes to."""

    __slots__ = ("_order", "held", "sink")

    def __init__(self, order: ResponseOrder, sink: ResponseSink) -> None:
        self._order = order
        self.sink = sink
        self.held: deque[tuple[InferResponse | None, bool] | InferenceServerError] = deque()

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        self.held.append((response, is_final))
        self._order.release()

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self.held.append(error)
        self._order.release()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`. What waits for its turn waits for the client of the oldest request."""
        return self._order.when_oldest_writable(callback)

    def deliver_next(self) -> bool:
        """Hand on the oldest held answer; return whether it was the request's last."""
        answer = self.held.popleft()
        if isinstance(answer, InferenceServerError):
            self.sink.fail(answer)
            return True
        response, is_final = answer
        self.sink.send(response, is_final)
        return is_final
