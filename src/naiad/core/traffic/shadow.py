"""Copies of requests for versions on trial, whose answers nobody reads.

Owns the copy of a request, the bound of how many there are, and the count of how they end. Nothing here raises, waits or
reaches the request that was copied. Loop thread only.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from naiad.core.region_sink import Completion, RunOnThread
from naiad.core.route import Route
from naiad.errors import Code, InferenceServerError
from naiad.request.request import InferRequest
from naiad.request.responder import Responder
from naiad.request.response import InferResponse

Arrays = Mapping[str, np.ndarray[Any, Any]]

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
        self._is_stopped = False
        self.counts: Counter[tuple[int, ShadowResult]] = Counter()

    @property
    def in_flight_count(self) -> int:
        """How many copies have begun and not ended."""
        return len(self._in_flight)

    def count(self, version: int, result: ShadowResult) -> None:
        """Count a copy that wasn't made."""
        self.counts[version, result] += 1

    def send(self, request: InferRequest, route: Route, limit: int) -> None:
        """Send a copy of an accepted request to `route`, unless `limit` of them are in flight."""
        version = route.model.plan.version
        if len(self._in_flight) >= limit or self._is_stopped:
            self.count(version, ShadowResult.DROPPED)
            return
        sink = _ShadowSink(version, self._end)
        self._in_flight[sink] = None
        size_bytes = sum([array.nbytes for array in request.inputs.values() if not array.dtype.hasobject])
        if size_bytes <= INLINE_BYTES:
            self._enqueue(request, _copied(request.inputs), route, sink)
        else:
            self._run_on_thread(lambda: self._copy_on_thread(request, route, sink))

    def stop(self) -> None:
        """Give up all copies and make no more: the server ends, and nobody waits for them."""
        self._is_stopped = True
        for request in list(self._in_flight.values()):
            if request is not None:
                request.cancel()

    def _copy_on_thread(self, request: InferRequest, route: Route, sink: _ShadowSink) -> Completion:
        """On a thread: copy what is large; what is returned goes on on the loop's."""
        try:
            inputs = _copied(request.inputs)
        except MemoryError:
            return lambda: self._end(sink, ShadowResult.DROPPED)
        return lambda: self._enqueue(request, inputs, route, sink)

    def _enqueue(self, request: InferRequest, inputs: Arrays, route: Route, sink: _ShadowSink) -> None:
        if self._is_stopped:
            self._end(sink, ShadowResult.DROPPED)
            return
        statistics, now_ns = route.model.statistics, time.monotonic_ns()
        copy = InferRequest(inputs, request.outputs, request.batch_size, Responder(sink, statistics, now_ns), now_ns)
        copy.id = request.id
        copy.parameters = request.parameters
        copy.priority = request.priority
        copy.timeout_us = request.timeout_us
        copy.sequence = request.sequence
        self._in_flight[sink] = copy
        try:
            route.model.enqueue(copy)
        except InferenceServerError:
            copy.responder.refuse()
            statistics.record_refusal()
            self._end(sink, ShadowResult.REFUSED)
        except Exception:
            # The request that was copied has been accepted and must not hear of a fault here.
            _log.exception("a copy for version %d of model '%s' failed by a fault of the server", sink.version, _name(route))
            copy.responder.refuse()
            self._end(sink, ShadowResult.FAILURE)

    def _end(self, sink: _ShadowSink, result: ShadowResult) -> None:
        if sink in self._in_flight:
            del self._in_flight[sink]
            self.count(sink.version, result)


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


def _copied(inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays of their own: the originals may lie in a block that another process waits to have back.

    Strings are elements of their own already.
    """
    return {name: array if array.dtype.hasobject else array.copy() for name, array in inputs.items()}


def _name(route: Route) -> str:
    return route.model.plan.name
