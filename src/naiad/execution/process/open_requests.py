"""The requests that a worker has and hasn't ended, and the responses that come for them one by one.

Owns the way of a RESPONSE to its client, with as much ahead as the client keeps up with. Loop thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from naiad.errors import InferenceServerError, internal
from naiad.execution.process.codec.decode import Buffer, KnownResponse, ResponseDecoder, backend_error
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.observability.statistics import ModelStatistics
from naiad.request.request import InferRequest
from naiad.worker.frames import FLAG_FINAL, Frame, Kind, pack

# Credit is given in parts, so that a frame isn't sent for each response; a worker may be 16 responses ahead.
_CREDIT_STEP = 4


class FrameSender(Protocol):
    """The way to the worker; does nothing when it is gone."""

    def send_later(self, frame: bytes) -> None:
        """Send with the next frame or at the end of the turn."""


class _Open:
    """A request in the worker, for the second time if `is_retry`. `sent` counts its responses, `uncredited` those whose credit
    isn't given back yet.
    """

    __slots__ = ("is_retry", "request", "sent", "since_ns", "uncredited")

    def __init__(self, request: InferRequest, is_retry: bool) -> None:
        self.request = request
        self.is_retry = is_retry
        self.sent = 0
        self.uncredited = 0
        self.since_ns = 0


class OpenRequests:
    """See the module. `on_end` is called when a request has ended by its last response, `on_cancel` when one is about to end by
    its cancellation.
    """

    def __init__(
        self,
        decoder: ResponseDecoder,
        statistics: ModelStatistics,
        sender: FrameSender,
        on_end: Callable[[], None],
        on_cancel: Callable[[], None],
    ) -> None:
        self._decoder = decoder
        self._statistics = statistics
        self._sender = sender
        self._on_end = on_end
        self._on_cancel = on_cancel
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request_id: int, request: InferRequest, is_retry: bool = False) -> None:
        """Take a request that is being sent to the worker, for the second time if `is_retry`."""
        self._open[request_id] = _Open(request, is_retry)
        request.on_cancel = self._cancel

    def get(self, request_id: int) -> InferRequest | None:
        """Return the request with that id, while it is open."""
        entry = self._open.get(request_id)
        return None if entry is None else entry.request

    def take_unanswered(self) -> list[tuple[InferRequest, bool]]:
        """Return the requests without any response, and whether each is a retry; they are held no longer."""
        unanswered = [(number, entry) for number, entry in self._open.items() if not entry.sent]
        for number, _ in unanswered:
            self.pop(number)
        return [(entry.request, entry.is_retry) for _, entry in unanswered]

    def pop(self, request_id: int) -> InferRequest | None:
        """Return the request and hold it no longer, for who answers it otherwise."""
        entry = self._open.pop(request_id, None)
        if entry is None:
            return None
        entry.request.on_cancel = None
        return entry.request

    def reschedule(self, request_id: int) -> None:
        """Let go of a request that the model wants again: who has given it takes it back with its batch."""
        request = self.pop(request_id)
        if request is not None:
            request.is_rescheduled = True

    def unended_count(self, running: Iterable[int] = ()) -> int:
        """Return how many requests have had no end yet, those in `running` left out."""
        left_out = frozenset(running)
        return sum(not entry.request.responder.has_ended for number, entry in self._open.items() if number not in left_out)

    def take_response(self, frame: Frame, data: Buffer) -> None:
        """Pass a RESPONSE on. May raise BrokenWorkerError."""
        entry = self._open.get(frame.id)
        if entry is None:
            return
        is_final = bool(frame.flags & FLAG_FINAL)
        if not (is_final or (frame.tail and self._decoder.is_decoupled)):
            raise BrokenWorkerError(f"a response to request {frame.id} is neither its last one nor one of a stream")
        if frame.tail:
            self._respond(frame.id, entry, self._decoder.read_one(frame.tail), data, is_final=is_final)
        else:
            self.pop(frame.id)
            self._end_without(entry)
        if is_final:
            self._on_end()
        else:
            self._give_credit(frame.id, entry)

    def fail_all(self, error: InferenceServerError) -> None:
        """End every request with `error`: the worker is gone."""
        entries, self._open = self._open, {}
        for entry in entries.values():
            entry.request.on_cancel = None
        for entry in entries.values():
            entry.request.responder.fail(error)

    def _respond(self, request_id: int, entry: _Open, known: KnownResponse, data: Buffer, *, is_final: bool) -> None:
        began_ns = time.monotonic_ns()
        response = self._decoder.response(known, entry.request, data)
        if is_final:
            self.pop(request_id)
        responder = entry.request.responder
        is_error = isinstance(response, InferenceServerError)
        if isinstance(response, InferenceServerError):
            # It ends the request for its client, whatever the model says after it.
            is_wanted = responder.fail(response)
        else:
            is_wanted = responder.send(response, is_final)
        entry.sent += 1
        if self._decoder.is_decoupled:
            self._count(entry, began_ns, is_error=is_error, is_wanted=is_wanted)

    def _count(self, entry: _Open, began_ns: int, *, is_error: bool, is_wanted: bool) -> None:
        index, infer_ns, ended_ns = entry.sent - 1, _infer_ns(entry, began_ns), time.monotonic_ns()
        if is_wanted:
            self._statistics.record_response(index, not is_error, infer_ns, ended_ns - began_ns)
        else:
            self._statistics.record_cancelled_response(index, infer_ns)
        entry.since_ns = ended_ns

    def _end_without(self, entry: _Open) -> None:
        """The worker ended the request without a further response."""
        request = entry.request
        if not self._decoder.is_decoupled:
            request.responder.fail(backend_error(internal("the model ended the request without a response")))
            return
        infer_ns = _infer_ns(entry, time.monotonic_ns())
        if request.responder.send(None, is_final=True):
            self._statistics.record_empty_response(entry.sent, infer_ns)
        elif request.is_cancelled:
            # The worker keeps to itself what the model sends after that.
            self._statistics.record_cancelled_response(entry.sent, infer_ns)

    def _give_credit(self, request_id: int, entry: _Open) -> None:
        entry.uncredited += 1
        if entry.request.responder.when_writable(partial(self._credit, request_id)) and entry.uncredited >= _CREDIT_STEP:
            self._credit(request_id)

    def _credit(self, request_id: int) -> None:
        entry = self._open.get(request_id)
        if entry is not None and entry.uncredited:
            self._sender.send_later(pack(Kind.CREDIT, request_id, value=entry.uncredited))
            entry.uncredited = 0

    def _cancel(self, request: InferRequest) -> None:
        """Tell the worker that a request's client is gone; the worker ends it when the model does."""
        for number, entry in self._open.items():
            if entry.request is request:
                self._sender.send_later(pack(Kind.CANCEL, number))
                break
        # `InferRequest.cancel` ends the request right after this.
        self._on_cancel()


def _infer_ns(entry: _Open, now_ns: int) -> int:
    """Return how long the model took until now, from the response before or the request's arrival."""
    return now_ns - (entry.since_ns or entry.request.enqueued_ns)
