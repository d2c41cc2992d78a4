"""The requests that a worker has and hasn't ended, and the responses that come for them one by one.

Owns the way of a RESPONSE to its client, with as much ahead as the client keeps up with. Loop thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from naiad.errors import InferenceServerError, internal
from naiad.execution.process.codec.decode import Buffer, ResponseDecoder, backend_error
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
    """A request in the worker. `sent` counts its responses, `uncredited` those whose credit isn't given back yet."""

    __slots__ = ("request", "sent", "since_ns", "uncredited")

    def __init__(self, request: InferRequest) -> None:
        self.request = request
        self.sent = 0
        self.uncredited = 0
        self.since_ns = 0


class OpenRequests:
    """See the module. `on_end` is called when a request has ended by its last response or its cancellation."""

    def __init__(
        self, decoder: ResponseDecoder, statistics: ModelStatistics, sender: FrameSender, on_end: Callable[[], None]
    ) -> None:
        self._decoder = decoder
        self._statistics = statistics
        self._sender = sender
        self._on_end = on_end
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request_id: int, request: InferRequest) -> None:
        """Take a request that is being sent to the worker."""
        self._open[request_id] = _Open(request)
        request.on_cancel = self._cancel

    def get(self, request_id: int) -> InferRequest | None:
        """Return the request with that id, while it is open."""
        entry = self._open.get(request_id)
        return None if entry is None else entry.request

    def sent_count(self, request_id: int) -> int:
        """Return how many responses the request has had."""
        entry = self._open.get(request_id)
        return 0 if entry is None else entry.sent

    def pop(self, request_id: int) -> InferRequest | None:
        """Return the request and hold it no longer, for who answers it otherwise."""
        entry = self._open.pop(request_id, None)
        if entry is None:
            return None
        entry.request.on_cancel = None
        return entry.request

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
        if is_final:
            self._open.pop(frame.id)
            entry.request.on_cancel = None
        responder = entry.request.responder
        began_ns = time.monotonic_ns()
        if not frame.tail:
            self._end_without(entry)
        else:
            response = self._decoder.response(self._decoder.read_one(frame.tail), entry.request, data)
            index = entry.sent
            entry.sent += 1
            if isinstance(response, InferenceServerError):
                # An error ends the request for its client, whatever the model says after it.
                responder.fail(response)
            else:
                responder.send(response, is_final)
            self._count(entry, index, isinstance(response, InferenceServerError), began_ns)
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

    def _end_without(self, entry: _Open) -> None:
        """The worker ended the request without a further response."""
        if not entry.sent and not self._decoder.is_decoupled:
            entry.request.responder.fail(backend_error(internal("the model ended the request without a response")))
            return
        if entry.request.responder.send(None, is_final=True):
            self._statistics.record_empty_response(entry.sent)

    def _count(self, entry: _Open, index: int, has_failed: bool, began_ns: int) -> None:
        if not self._decoder.is_decoupled:
            return
        since_ns = entry.since_ns or entry.request.enqueued_ns
        self._statistics.record_response(index, not has_failed, began_ns - since_ns, time.monotonic_ns() - began_ns)
        entry.since_ns = time.monotonic_ns()

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
        self._on_end()
