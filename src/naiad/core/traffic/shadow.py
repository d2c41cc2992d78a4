"""Copies of requests for versions on trial, whose answers nobody reads.

Owns the copy of a request, the bound of how many there are, and the count of how they end. Nothing here raises, waits or
reaches the request that was copied. Loop thread only.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

from naiad.core.region_sink import Completion, RunOnThread
from naiad.core.route import Route
from naiad.core.validate import CheckedCall
from naiad.errors import Code, InferenceServerError
from naiad.request.call import InferCall
from naiad.request.request import InferRequest, Sequence
from naiad.request.responder import Responder
from naiad.request.response import InferResponse

# Copying as much takes some 0.1 ms.
INLINE_BYTES = 1 << 20

_log = logging.getLogger("naiad.traffic")


class ShadowResult(Enum):
    """What became of a copy, as the label `result` says it."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    DROPPED = "dropped"
    SKIPPED = "skipped"


class ShadowRequests:
    """The copies of one model's requests: `counts` by version and result, `in_flight_count` those that haven't ended."""

    def __init__(self, run_on_thread: RunOnThread) -> None:
        self._run_on_thread = run_on_thread
        self._in_flight: dict[_ShadowSink, InferRequest | None] = {}
        self._waiting: deque[_Waiting] = deque()
        self._is_stopped = False
        self.counts: Counter[tuple[int, ShadowResult]] = Counter()

    @property
    def in_flight_count(self) -> int:
        """How many copies have begun and not ended."""
        return len(self._in_flight)

    def count(self, version: int, result: ShadowResult) -> None:
        """Count a copy that wasn't made."""
        self.counts[version, result] += 1

    def send(self, call: InferCall, checked: CheckedCall, route: Route, limit: int) -> None:
        """Send a copy of an accepted call to `route`, unless `limit` of them are in flight. Copies keep the order of calls."""
        version = route.model.plan.version
        if len(self._in_flight) >= limit or self._is_stopped:
            self.count(version, ShadowResult.DROPPED)
            return
        sink = _ShadowSink(version, self._end)
        self._in_flight[sink] = None
        size_bytes = sum([array.nbytes for array in checked.inputs.values() if not array.dtype.hasobject])
        if size_bytes > INLINE_BYTES:
            waiting = _Waiting(call, None, route, sink)
            self._run_on_thread(lambda: self._copy_on_thread(checked, waiting))
        else:
            waiting = _Waiting(call, _copied(checked), route, sink)
        self._waiting.append(waiting)
        self._send_copied()

    def stop(self) -> None:
        """Give up all copies and make no more: the server ends, and nobody waits for them."""
        self._is_stopped = True
        for request in list(self._in_flight.values()):
            if request is not None:
                request.cancel()

    def _copy_on_thread(self, checked: CheckedCall, waiting: _Waiting) -> Completion:
        """On a thread: copy what is large; what is returned goes on on the loop's."""
        try:
            copied = _copied(checked)
        except MemoryError:
            return lambda: self._give_up(waiting)

        def go_on() -> None:
            waiting.copied = copied
            self._send_copied()

        return go_on

    def _give_up(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        self._end(waiting.sink, ShadowResult.DROPPED)
        self._send_copied()

    def _send_copied(self) -> None:
        """Send what is copied, up to the first that isn't."""
        while self._waiting and self._waiting[0].copied is not None:
            waiting = self._waiting.popleft()
            if self._is_stopped:
                self._end(waiting.sink, ShadowResult.DROPPED)
            else:
                self._enqueue(waiting.call, cast(CheckedCall, waiting.copied), waiting.route, waiting.sink)

    def _enqueue(self, call: InferCall, checked: CheckedCall, route: Route, sink: _ShadowSink) -> None:
        statistics, now_ns = route.model.statistics, time.monotonic_ns()
        responder = Responder(sink, statistics, now_ns)
        copy = InferRequest(checked.inputs, checked.outputs, checked.batch_size, responder, now_ns)
        copy.id = call.id
        copy.parameters = call.parameters
        copy.priority = call.priority
        copy.timeout_us = call.timeout_us
        copy.client = call.client
        copy.may_omit_outputs = call.may_omit_outputs
        if call.sequence_id:
            copy.sequence = Sequence(call.sequence_id, call.is_sequence_start, call.is_sequence_end)
        self._in_flight[sink] = copy
        try:
            route.model.enqueue(copy)
        except InferenceServerError as error:
            responder.refuse()
            statistics.record_refusal(error)
            self._end(sink, ShadowResult.REFUSED)
        except Exception:
            # The request that was copied has been accepted and must not hear of a fault here.
            _log.exception("a copy for version %d of model '%s' failed by a fault of the server", sink.version, _name(route))
            responder.refuse()
            self._end(sink, ShadowResult.FAILURE)

    def _end(self, sink: _ShadowSink, result: ShadowResult) -> None:
        if sink in self._in_flight:
            del self._in_flight[sink]
            self.count(sink.version, result)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A copy that is still to be sent; `copied` is None while its inputs are being copied."""

    call: InferCall
    copied: CheckedCall | None
    route: Route
    sink: _ShadowSink


class _ShadowSink:
    """Takes the answers of one copy and keeps only how it ended. See `ResponseSink`."""

    __slots__ = ("_on_end", "version")

    def __init__(self, version: int, on_end: Callable[[_ShadowSink, ShadowResult], None]) -> None:
        self.version = version
        self._on_end = on_end

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if is_final:
            self._on_end(self, ShadowResult.SUCCESS)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._on_end(self, ShadowResult.CANCELLED if error.code is Code.CANCELLED else ShadowResult.FAILURE)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: nobody holds the model up."""
        return True


def _copied(checked: CheckedCall) -> CheckedCall:
    """Return the same with arrays of their own: the originals may lie in a block that another process waits to have back.

    Strings are elements of their own already.
    """
    inputs = {name: array if array.dtype.hasobject else array.copy() for name, array in checked.inputs.items()}
    return replace(checked, inputs=inputs)


def _name(route: Route) -> str:
    return route.model.plan.name
