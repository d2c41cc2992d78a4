"""The instances of a sequence model, each with its slots: they run what the sequences in the slots have to run.

Owns the way of a request from its sequence to the instance and back, by each of the two strategies. Doesn't own sequences: who
begins, ends or waits for a slot is the scheduler's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from naiad.clock import Clock
from naiad.config.plan import SequencePlan
from naiad.errors import InferenceServerError
from naiad.request.batch import Batch, CloseReason, Instance
from naiad.request.request import InferRequest
from naiad.request.responder import Responder
from naiad.schedulers.alarm import Alarm
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.hold import Hold
from naiad.schedulers.sequence.controls import ControlTensors
from naiad.schedulers.sequence.live import LiveSequence
from naiad.schedulers.sequence.rounds import Round, RoundRules, Wait, next_round
from naiad.schedulers.sequence.states import StateTensors

Array = np.ndarray[Any, Any]


class LaneOwner(Protocol):
    """The scheduler as lanes see it."""

    def end_request(self, sequence: LiveSequence, request: InferRequest) -> None:
        """Note that the instance is done with `request`; the sequence may go on."""

    def give_up(self, sequence: LiveSequence) -> None:
        """End `sequence`, whose first waiting request was given up by its client."""

    def count_padding(self, count: int) -> None:
        """Note that the last batch had `count` items that no client sent."""

    def check_lane(self, lane: InstanceLane) -> None:
        """See whether a lane that is to go can go now."""


@dataclass(frozen=True, slots=True)
class LaneContext:
    """What all lanes of a model version share."""

    plan: SequencePlan
    clock: Clock
    controls: ControlTensors
    states: StateTensors
    owner: LaneOwner
    hold: Hold
    close_counts: dict[CloseReason, int]

    def prepare(self, sequence: LiveSequence, request: InferRequest) -> None:
        """Add to `request`, the next of `sequence`, what the model is told and the state that the one before it left."""
        assert request.sequence is not None
        added = self.controls.of(request.sequence)
        if sequence.state is None:
            request.inputs = {**request.inputs, **added}
            return
        if request.sequence.is_start:
            sequence.state.reset()
        request.inputs = {**request.inputs, **added, **sequence.state.arrays}

    def follow(self, sequence: LiveSequence, request: InferRequest) -> None:
        """Have the answer leave its state with the sequence; that of a repeated request does so already."""
        if sequence.state is not None and not sequence.is_repeated:
            sequence.state.follow(request)


class InstanceLane:
    """What both strategies have in common. `is_open`: new sequences may come. `on_free` is set while the lane is to go."""

    def __init__(self, instance: Instance, number: int, context: LaneContext) -> None:
        self.instance = instance
        self.number = number
        self.slots: list[LiveSequence | None] = [None] * context.plan.slots
        self.is_open = True
        self.on_free: Callable[[], None] | None = None
        self._context = context

    def sequences(self) -> list[LiveSequence]:
        """Return the sequences that hold slots here."""
        return [sequence for sequence in self.slots if sequence is not None]

    def next_request(self, sequence: LiveSequence) -> InferRequest | None:
        """Return the first waiting request of `sequence`, None when none waits or one runs. A sequence whose client gave up the
        request whose turn it is has ended.
        """
        if sequence.running is not None or not sequence.waiting or not self._context.hold.is_over:
            return None
        if sequence.waiting[0].is_cancelled:
            self._context.owner.give_up(sequence)
            return None
        return sequence.waiting[0]


class DirectLane(InstanceLane):
    """The direct strategy: a sequence has its position in every batch, and the positions of those that have nothing to run are
    filled up, below the last one that has.
    """

    def __init__(self, instance: Instance, number: int, context: LaneContext) -> None:
        super().__init__(instance, number, context)
        self._rules = RoundRules.of(context.plan)
        self._alarm = Alarm(context.clock, self._dispatch)
        self._running: list[tuple[LiveSequence, InferRequest]] = []
        self._padding_count = 0
        self._is_due = False
        self._is_paused = False

    def wake(self, sequence: LiveSequence) -> None:
        """See `Lane.wake`. What arrives in one turn of the loop runs together."""
        self._ask()

    def pending_count(self) -> int:
        """Return how many requests wait here outside their sequences."""
        return 0

    def running_count(self) -> int:
        """Return how many requests the instance has."""
        return len(self._running)

    def pause(self) -> None:
        """Give the instance nothing more."""
        self._is_paused = True
        self._alarm.cancel()

    def resume(self) -> None:
        """Give the instance work again."""
        self._is_paused = False
        self._ask()

    def fail_queued(self, error: InferenceServerError) -> None:
        """End the requests that wait here outside their sequences: there are none."""

    def _ask(self) -> None:
        if not (self._running or self._is_paused or self._is_due):
            self._is_due = True
            self._context.clock.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        self._dispatch()

    def _dispatch(self) -> None:
        if self._running or self._is_paused:
            return
        heads = self._heads()
        while not self._are_heads(heads):
            # The end of a sequence gave its slot to another, or ended further ones.
            heads = self._heads()
        now_ns = self._context.clock.now_ns()
        decision = next_round(heads, self._rules, now_ns, self._states_of)
        if isinstance(decision, Round):
            self._submit(decision, now_ns)
        elif isinstance(decision, Wait):
            self._alarm.wake_at(decision.until_ns)

    def _heads(self) -> list[InferRequest | None]:
        return [None if sequence is None else self.next_request(sequence) for sequence in self.slots]

    def _are_heads(self, heads: list[InferRequest | None]) -> bool:
        return all(
            request is None or (sequence is not None and bool(sequence.waiting) and sequence.waiting[0] is request)
            for request, sequence in zip(heads, self.slots)
        )

    def _states_of(self, slot: int) -> Mapping[str, Any]:
        """Return the state tensors that go in with the next request of a slot's sequence."""
        sequence = self.slots[slot]
        if sequence is None or sequence.state is None:
            return {}
        told = sequence.waiting[0].sequence
        return self._context.states.initial if told is not None and told.is_start else sequence.state.arrays

    def _submit(self, decision: Round, now_ns: int) -> None:
        requests: list[InferRequest] = []
        place, first = next((slot, request) for slot, request in enumerate(decision.requests) if request is not None)
        like = {**first.inputs, **self._states_of(place)}
        for slot, request in enumerate(decision.requests):
            sequence = self.slots[slot]
            if request is None:
                requests.append(self._padding(like, first.outputs, now_ns))
                continue
            assert sequence is not None
            sequence.waiting.popleft()
            request.on_cancel = None
            sequence.running = request
            self._running.append((sequence, request))
            self._context.prepare(sequence, request)
            self._context.follow(sequence, request)
            requests.append(request)
        self._padding_count = len(requests) - len(self._running)
        self.instance.submit(Batch(requests, len(requests), is_positional=True), self._on_done)

    def _padding(self, like: Any, outputs: tuple[str, ...], now_ns: int) -> InferRequest:
        """Return what fills a position: blank tensors of the batch's shapes, and nobody who waits for an answer."""
        inputs = {name: _blank(array) for name, array in like.items()}
        inputs |= self._context.controls.of_padding()
        responder = Responder(_NOBODY, _NOBODY, now_ns)
        responder.refuse()
        request = InferRequest(inputs, (*outputs, *self._context.states.outputs), 1, responder, now_ns)
        request.is_padding = True
        return request

    def _on_done(self, instance: Instance) -> None:
        if self._padding_count:
            self._context.owner.count_padding(self._padding_count)
        done, self._running = self._running, []
        for sequence, request in done:
            sequence.running = None
            self._context.owner.end_request(sequence, request)
        self._ask()
        self._context.owner.check_lane(self)


class OldestLane(InstanceLane):
    """The oldest strategy: each sequence has one request at a time in a dynamic batcher of the instance's own."""

    def __init__(self, instance: Instance, number: int, context: LaneContext) -> None:
        super().__init__(instance, number, context)
        assert context.plan.oldest is not None
        self._relay = _Relay(instance, self._on_batch_done)
        self._batcher = DynamicScheduler([self._relay], context.clock, context.plan.oldest)
        self._batcher.close_counts = context.close_counts
        self._fed: dict[InferRequest, LiveSequence] = {}

    def wake(self, sequence: LiveSequence) -> None:
        """See `Lane.wake`."""
        request = self.next_request(sequence)
        if request is None:
            return
        sequence.waiting.popleft()
        sequence.running = request
        self._fed[request] = sequence
        self._context.prepare(sequence, request)
        arrived_ns = request.enqueued_ns
        self._batcher.enqueue(request)
        # The time in the queue, and the batcher's delay, count from when it came.
        request.enqueued_ns = arrived_ns
        request.on_cancel = partial(self._drop, request.on_cancel)
        self._context.follow(sequence, request)

    def pending_count(self) -> int:
        """Return how many requests wait here outside their sequences."""
        return self._batcher.pending_count()

    def running_count(self) -> int:
        """Return how many requests the instance has."""
        return self._batcher.running_count()

    def pause(self) -> None:
        """Give the instance nothing more."""
        self._batcher.remove(self._relay)

    def resume(self) -> None:
        """Give the instance work again."""
        self._batcher.add(self._relay)

    def fail_queued(self, error: InferenceServerError) -> None:
        """End the requests that wait here outside their sequences."""
        self._batcher.fail_queued(error)
        for request in [request for request in self._fed if request.responder.has_ended]:
            self._fed.pop(request).running = None

    def _drop(self, drop: Callable[[InferRequest], None] | None, request: InferRequest) -> None:
        """A client gave up a request that is still in the batcher: its sequence ends."""
        if drop is not None:
            drop(request)
        sequence = self._fed.pop(request)
        sequence.running = None
        self._context.owner.give_up(sequence)

    def _on_batch_done(self, batch: Batch) -> None:
        for request in batch.requests:
            sequence = self._fed.pop(request, None)
            if sequence is not None:
                sequence.running = None
                self._context.owner.end_request(sequence, request)
        self._context.owner.check_lane(self)


class _Relay:
    """See `Instance`: the lane's instance as its batcher sees it, so that the lane learns when a batch is done."""

    run_length = 1
    open_count = 0

    def __init__(self, instance: Instance, on_batch_done: Callable[[Batch], None]) -> None:
        self.name = instance.name
        self.on_open_zero: Callable[[], None] = lambda: None
        self._instance = instance
        self._on_batch_done = on_batch_done

    async def check_ready(self) -> bool:
        """See `Instance.check_ready`."""
        return await self._instance.check_ready()

    def submit_run(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        """See `Instance.submit_run`: a run has one batch here."""
        for batch in batches:
            self.submit(batch, on_done)

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        """See `Instance.submit`."""

        def done(_: Instance) -> None:
            on_done(self)
            self._on_batch_done(batch)

        self._instance.submit(batch, done)


class _Nobody:
    """The sink and the recorder of what fills a position: it has ended before it runs."""

    def send(self, response: Any, is_final: bool) -> None:
        """See `ResponseSink.send`."""

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return True

    def record_success(self, request_ns: int) -> None:
        """See `Recorder.record_success`."""

    def record_failure(self, reason: Any, request_ns: int) -> None:
        """See `Recorder.record_failure`."""


_NOBODY = _Nobody()


def _blank(array: Array) -> Array:
    blank = np.zeros(array.shape, array.dtype)
    if array.dtype.hasobject:
        blank[...] = b""
    return blank
