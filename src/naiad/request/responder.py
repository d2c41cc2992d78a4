"""How a request is answered: 0..n responses, then exactly one end.

Owns the rule that each request ends once. `ResponseSink` is what a frontend gives; `Responder` guards it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from naiad.errors import FailureReason, InferenceServerError, internal
from naiad.request.response import InferResponse


class ResponseSink(Protocol):
    """Where a request's responses go. Called on the loop thread; must not block and must not raise."""

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """Take a response. `response` None comes only with `is_final`: the request ends without a further response."""

    def fail(self, error: InferenceServerError) -> None:
        """Take the error that ends the request."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """Return whether the client keeps up with what was sent. When it doesn't, `callback` is called once, as soon as it does
        again or is gone.
        """


class Recorder(Protocol):
    """Who counts how requests end. Called on the loop thread, once per request."""

    def record_success(self, request_ns: int) -> None:
        """Count a request that ended well, `request_ns` nanoseconds after it was received."""

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        """Count a request that ended with an error."""


class Responder:
    """Answers one request; the loop thread only.

    After the end (a final response or an error) everything further is ignored and returns False, so that a late model can't
    answer a cancelled request. One that is dropped without an end answers INTERNAL and is counted.
    """

    __slots__ = ("_recorder", "_sink", "_started_ns")

    def __init__(self, sink: ResponseSink, recorder: Recorder, started_ns: int) -> None:
        self._sink: ResponseSink | None = sink
        self._recorder = recorder
        self._started_ns = started_ns

    @property
    def has_ended(self) -> bool:
        """Whether the request got its final response or its error."""
        return self._sink is None

    def redirect(self, wrap: Callable[[ResponseSink], ResponseSink]) -> None:
        """Put `wrap(sink)` in place of the sink, for who must hold or change answers on their way; nothing after the end."""
        if self._sink is not None:
            self._sink = wrap(self._sink)

    def send(self, response: InferResponse | None, is_final: bool = True) -> bool:
        """Send a response; return False when the request had ended before."""
        sink = self._sink
        if sink is None:
            return False
        if is_final:
            self._sink = None
            self._recorder.record_success(time.monotonic_ns() - self._started_ns)
        sink.send(response, is_final)
        return True

    def fail(self, error: InferenceServerError) -> bool:
        """End the request with `error`; return False when it had ended before."""
        sink = self._sink
        if sink is None:
            return False
        self._sink = None
        self._recorder.record_failure(error.reason, time.monotonic_ns() - self._started_ns)
        sink.fail(error)
        return True

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`; true when the request has ended, as nothing waits for a client then."""
        sink = self._sink
        return sink is None or sink.when_writable(callback)

    def refuse(self, error: InferenceServerError | None = None) -> None:
        """End the request without counting it, since it was refused before it was accepted; its sink gets `error`, if any."""
        sink, self._sink = self._sink, None
        if sink is not None and error is not None:
            sink.fail(error)

    def __del__(self) -> None:
        if self._sink is not None:
            self.fail(internal("the request was dropped without an answer"))
