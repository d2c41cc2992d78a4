"""What stands before a model's scheduler when its answers are kept: look up, answer, or let one run and keep what it says.

Owns the way of a request through the cache. Doesn't own the entries (`base.ResponseCache`) nor the keys (`key`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from naiad.cache.base import CachedResponse, ResponseCache, copy_of, data_bytes
from naiad.cache.flight import Flight, LeaderSink
from naiad.cache.key import hashed_bytes, request_key
from naiad.errors import FailureReason, InferenceServerError, unavailable
from naiad.observability.statistics import ModelStatistics
from naiad.request.call import Parameter
from naiad.request.request import InferRequest
from naiad.request.response import InferResponse, KeptAnswer, OutputTensor

Completion = Callable[[], None]

# SHA-256 takes 0.15 ms for as much with the instructions that CPUs have for it, 0.6 ms without; copying is ten times faster.
_HASHED_IN_PLACE_BYTES = 256 << 10
_COPIED_IN_PLACE_BYTES = 1 << 20

_now_ns = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class FrontContext:
    """What a model gives its front. `enqueue` hands a request on to the model, and raises as `Scheduler.enqueue` does;
    `run_on_thread` runs a job on a thread and what it returns on the loop; `on_idle` is told each time nothing is held.
    """

    name: str
    version: str
    statistics: ModelStatistics
    enqueue: Callable[[InferRequest], None]
    run_on_thread: Callable[[Callable[[], Completion]], None]
    call_soon: Callable[[Callable[[], None]], None]
    on_idle: Callable[[], None]


class CacheFront:
    """The cache's side of one loaded model version. Loop thread only.

    Requests with the same key, priority and time-out that come while one runs wait for its answer and run no second time. When
    it is cancelled the next one runs; when it was refused (queue full, too late) each goes on for itself, as each has a time of
    its own; any other error is that of all.
    """

    def __init__(self, cache: ResponseCache, context: FrontContext, digest: bytes = b"") -> None:
        """`digest` is common to equal models on all servers, b"" for a model that shares no answers."""
        self._cache = cache
        self._context = context
        is_shared = digest and cache.is_shared
        self._generation = b"%d:%b" % (int(context.version), digest) if is_shared else os.urandom(16)
        self.salt = b""
        self._flights: dict[tuple[bytes, int, int], Flight] = {}
        self._hashing = 0
        self._idle_event: asyncio.Event | None = None

    @property
    def open_count(self) -> int:
        """How many requests are held here: looked up, or waiting for the answer to another."""
        return self._hashing + sum([len(flight.waiting) for flight in self._flights.values()])

    def enqueue(self, request: InferRequest) -> None:
        """Take a request, as `Scheduler.enqueue` does. One of a sequence depends on those before it: it isn't looked up."""
        if request.sequence is not None:
            self._context.enqueue(request)
            return
        began_ns = _now_ns()
        if hashed_bytes(request) <= _HASHED_IN_PLACE_BYTES:
            error = self._find(request, request_key(request), began_ns)
            if error is not None:
                raise error
            return
        self._hashing += 1

        def job() -> Completion:
            key = b"" if request.is_cancelled else request_key(request)
            return lambda: self._end_hashing(request, key, began_ns)

        self._context.run_on_thread(job)

    async def wait_idle(self) -> None:
        """Return when nothing is held here; no further request must come."""
        while self.open_count:
            self._idle_event = asyncio.Event()
            await self._idle_event.wait()

    def close(self) -> None:
        """Give back what the model has stored: it will not be asked again."""
        self._cache.forget(self._generation)

    def renew(self) -> None:
        """Find nothing any more of what was stored up to now, nor of what runs: the model answers otherwise from now on."""
        self.salt = os.urandom(8)

    def _end_hashing(self, request: InferRequest, key: bytes, began_ns: int) -> None:
        self._hashing -= 1
        if not request.responder.has_ended:
            error = self._find(request, key, began_ns)
            if error is not None:
                self._refuse(request, error)
        self._tell_idle()

    def _find(self, request: InferRequest, key: bytes, began_ns: int) -> InferenceServerError | None:
        """Answer from the cache, wait for one that is the same, or run; return why the model refuses it."""
        # What may be incomplete is nothing for those who want all of it.
        variant = self.salt + b"?" if request.may_omit_outputs else self.salt
        place = (key + variant, request.priority, request.timeout_us)
        flight = self._flights.get(place)
        if flight is not None:
            flight.join(request)
            return None
        found = self._cache.lookup(self._generation, place[0])
        if isinstance(found, CachedResponse):
            self._answer(request, found, _now_ns() - began_ns, _Kept(self, place[0], found))
            return None
        flight = self._flights[place] = Flight(place, self._tell_idle)
        flight.join(request)
        if found is not None:
            found.add_done_callback(lambda future: self._end_lookup(flight, future, began_ns))
            return None
        self._context.statistics.record_cache_miss(_now_ns() - began_ns)
        refused = self._run_next(flight)
        if refused is None:
            return None
        self._remove(flight)
        return refused[1]

    def _end_lookup(self, flight: Flight, looked: asyncio.Future[CachedResponse | None], began_ns: int) -> None:
        # Only the end of the server cancels it.
        found = None if looked.cancelled() else looked.result()
        looked_ns = _now_ns() - began_ns
        if found is not None:
            self._land(flight, found, looked_ns)
            return
        self._context.statistics.record_cache_miss(looked_ns)
        self._hand_on(flight)

    def _run_next(self, flight: Flight) -> tuple[InferRequest, InferenceServerError] | None:
        """Let the first that waits run; return it with the error when the model refuses it."""
        leader = flight.take_leader()
        if leader is None:
            self._remove(flight)
            return None
        on_answer, on_failure = partial(self._on_answer, flight), partial(self._on_failure, flight)
        leader.responder.redirect(lambda sink: LeaderSink(sink, on_answer, on_failure))
        try:
            self._context.enqueue(leader)
        except InferenceServerError as error:
            return leader, error
        return None

    def _hand_on(self, flight: Flight) -> None:
        """Let the next one run. When the model refuses it, the others go on for themselves."""
        refused = self._run_next(flight)
        if refused is not None:
            self._dissolve(flight)
            self._refuse(*refused)
        self._tell_idle()

    def _dissolve(self, flight: Flight) -> None:
        """Let each that waits run for itself."""
        self._remove(flight)
        for request in flight.take_all():
            self._run_alone(request)
        self._tell_idle()

    def _run_alone(self, request: InferRequest) -> None:
        try:
            self._context.enqueue(request)
        except InferenceServerError as error:
            self._refuse(request, error)

    def _refuse(self, request: InferRequest, error: InferenceServerError) -> None:
        """End a request that the model didn't accept, which counts in no failure counter."""
        self._context.statistics.record_refusal(error)
        request.responder.refuse(error)

    def _on_failure(self, flight: Flight, error: InferenceServerError) -> None:
        """The leader has failed. Others go on in a later turn: a scheduler that fails many must not get new ones meanwhile."""
        if self._flights.get(flight.place) is not flight:
            return
        if error.reason is FailureReason.CANCELED:
            self._context.call_soon(partial(self._hand_on, flight))
        elif error.reason is FailureReason.REJECTED:
            self._context.call_soon(partial(self._dissolve, flight))
        else:
            self._fail(flight, error)

    def _fail(self, flight: Flight, error: InferenceServerError) -> None:
        self._remove(flight)
        for request in flight.take_all():
            request.responder.fail(error)
        self._tell_idle()

    def _on_answer(self, flight: Flight, response: InferResponse | None) -> None:
        """Keep what the leader was answered, and give it to the others."""
        outputs = [] if response is None else list(response.outputs)
        least_bytes = sum([output.array.nbytes for output in outputs])
        if response is None or not (flight.waiting or self._cache.accepts(least_bytes)):
            self._dissolve(flight)
            return
        parameters = response.parameters
        if data_bytes(outputs) <= _COPIED_IN_PLACE_BYTES:
            self._end_copy(flight, _copied(outputs, parameters), 0)
            return
        began_ns = _now_ns()

        def copy() -> Completion:
            copied = _copied(outputs, parameters)
            return lambda: self._end_copy(flight, copied, _now_ns() - began_ns)

        self._context.run_on_thread(copy)

    def _end_copy(self, flight: Flight, copied: CachedResponse | InferenceServerError, copied_ns: int) -> None:
        if isinstance(copied, InferenceServerError):
            self._fail(flight, copied)
            return
        if self._cache.accepts(copied.size_bytes):
            began_ns = _now_ns()
            self._cache.insert(self._generation, flight.key, copied)
            self._context.statistics.record_cache_insert(copied_ns + _now_ns() - began_ns)
        self._land(flight, copied, 0)

    def _land(self, flight: Flight, found: CachedResponse, looked_ns: int) -> None:
        """Answer all that wait."""
        self._remove(flight)
        for request in flight.take_all():
            self._answer(request, found, looked_ns)
        self._tell_idle()

    def repeat(self, key: bytes, mark: object, salt: bytes) -> bool:
        """See `KeptAnswer.repeat`, for the answer of `mark` that was found under `key` while the front had `salt`."""
        began_ns = _now_ns()
        if self.salt is not salt or not self._cache.confirms(self._generation, key, mark):
            return False
        statistics, taken_ns = self._context.statistics, _now_ns() - began_ns
        statistics.record_success(taken_ns)
        statistics.record_cache_hit(taken_ns)
        return True

    def _answer(self, request: InferRequest, found: CachedResponse, looked_ns: int, kept: KeptAnswer | None = None) -> None:
        context = self._context
        response = InferResponse(context.name, context.version, request.id, found.outputs(), found.parameters, None, kept)
        if request.responder.send(response):
            context.statistics.record_cache_hit(looked_ns)

    def _remove(self, flight: Flight) -> None:
        if self._flights.get(flight.place) is flight:
            del self._flights[flight.place]

    def _tell_idle(self) -> None:
        if self.open_count:
            return
        if self._idle_event is not None:
            self._idle_event.set()
        self._context.on_idle()


class _Kept:
    """See `KeptAnswer`."""

    __slots__ = ("_front", "_key", "_mark", "_salt")

    def __init__(self, front: CacheFront, key: bytes, found: CachedResponse) -> None:
        self._front = front
        self._key = key
        self._mark = found.mark
        self._salt = front.salt

    def repeat(self) -> bool:
        """See `KeptAnswer.repeat`."""
        return self._front.repeat(self._key, self._mark, self._salt)


def _copied(outputs: list[OutputTensor], parameters: Mapping[str, Parameter]) -> CachedResponse | InferenceServerError:
    try:
        return copy_of(outputs, parameters)
    except MemoryError:
        return unavailable("the server has no memory left to keep an answer that several requests wait for: try again later")
