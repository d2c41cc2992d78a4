"""The sequence batcher of one model version: the requests of a sequence go to one instance, one after the other.

Owns the sequences: their begin and end, slots and backlog, and the times after which they end by themselves. Doesn't own how an
instance runs them, which is `lanes`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from naiad.clock import Clock
from naiad.config.plan import ModelPlan
from naiad.errors import Code, FailureReason, InferenceServerError, cancelled, invalid_argument, unavailable
from naiad.request.batch import CloseReason, Instance
from naiad.request.request import InferRequest, Sequence
from naiad.schedulers.alarm import Alarm
from naiad.schedulers.hold import Hold
from naiad.schedulers.refusals import stopping
from naiad.schedulers.sequence.controls import ControlTensors
from naiad.schedulers.sequence.lanes import DirectLane, InstanceLane, LaneContext, OldestLane
from naiad.schedulers.sequence.live import LiveSequence, Slots
from naiad.schedulers.sequence.states import SequenceState, StateTensors

_log = logging.getLogger(__name__)

_AnyLane = DirectLane | OldestLane


class SequenceScheduler:
    """See `Scheduler`. Loop thread only.

    A sequence begins with a START and holds a slot of an instance until its END has run, until nothing of it came or ran for
    the idle time, or until its client gives up the request whose turn it is. When no slot is free it waits in the backlog.
    `count_padding` is told how many items of a batch no client sent.
    """

    def __init__(self, clock: Clock, plan: ModelPlan, count_padding: Callable[[int], None], hold: Hold | None = None) -> None:
        batching = plan.sequence_batching
        assert batching is not None
        self._model = plan.name
        self._clock = clock
        self._is_iterative = batching.is_iterative
        self._last_id = 0
        self._idle_ns = batching.max_idle_us * 1000
        self._states = StateTensors(batching)
        self._controls = ControlTensors(plan)
        self.close_counts = dict.fromkeys(CloseReason, 0) if batching.oldest else {}
        self._context = LaneContext(batching, clock, self._controls, self._states, self, hold or Hold(), self.close_counts)
        self._make_lane: Callable[[Instance, int, LaneContext], _AnyLane] = OldestLane if batching.oldest else DirectLane
        self._lanes: dict[Instance, _AnyLane] = {}
        self._lane_count = 0
        self._slots = Slots()
        self._open: dict[int | str, LiveSequence] = {}
        self._live: OrderedDict[LiveSequence, None] = OrderedDict()
        self._backlog: OrderedDict[LiveSequence, None] = OrderedDict()
        self._idle_alarm = Alarm(clock, self._end_idle)
        self._backlog_alarm = Alarm(clock, self._expire_backlog)
        self._predecessors: list[SequenceScheduler] = []
        self._expects_rest = False
        self._is_stopped = False
        self._idle_callbacks: list[Callable[[], None]] = []
        self._empty_callbacks: list[Callable[[], None]] = []
        self.count_padding = count_padding

    def enqueue(self, request: InferRequest) -> None:
        """See `Scheduler.enqueue`. Raises INVALID_ARGUMENT for a request that says no sequence, has more than one item, or
        continues a sequence that isn't under way.
        """
        if self._is_iterative:
            self._last_id += 1
            request.sequence = Sequence(self._controls.own_id(self._last_id), is_start=True, is_end=False)
        told = self._checked(request)
        sequence = self._open.get(told.id)
        if sequence is None or sequence.is_closing:
            if not told.is_start:
                self._continue_elsewhere(request, told)
                return
            if self._is_stopped:
                raise stopping()
            sequence = sequence or self._begin(told.id)
        elif told.is_start:
            _log.warning("sequence %r of model '%s' starts again before its end: the earlier one is over", told.id, self._model)
        request.enqueued_ns = self._clock.now_ns()
        sequence.waiting.append(request)
        request.on_cancel = partial(self._drop, sequence)
        sequence.is_closing = told.is_end
        self._keep_alive(sequence, request.enqueued_ns)
        if not self._context.hold.is_over:
            self._try_hold()
        if sequence.lane is not None:
            sequence.lane.wake(sequence)
        elif request.timeout_us:
            self._limit_wait(sequence, request.enqueued_ns + request.timeout_us * 1000)

    def follow(self, predecessor: SequenceScheduler) -> None:
        """Leave the sequences that `predecessor` has under way to it, until they end; their requests come here from now on."""
        predecessor.expect_rest()
        # It may be idle while one that it followed itself is not.
        for other in (predecessor, *predecessor._predecessors):
            self._predecessors.append(other)
            other.on_idle(partial(self._predecessors.remove, other))

    def expect_rest(self) -> None:
        """Go on with the sequences under way after `stop`, as the rest of their requests will still come."""
        self._expects_rest = True

    def knows(self, sequence_id: int | str) -> bool:
        """Return whether a sequence of this id is under way, here or where this scheduler sends it."""
        sequence = self._open.get(sequence_id)
        is_here = sequence is not None and not sequence.is_closing
        return is_here or any(predecessor.knows(sequence_id) for predecessor in self._predecessors)

    def sequence_count(self) -> int:
        """Return how many sequences are under way here, those in the backlog included."""
        return len(self._live)

    def backlog_count(self) -> int:
        """Return how many sequences wait for a slot."""
        return len(self._backlog)

    def pending_count(self) -> int:
        """See `Scheduler.pending_count`."""
        # One that was given up stays until its turn comes and ends the sequence, but nobody waits for it.
        waiting = sum([not request.is_cancelled for sequence in self._live for request in sequence.waiting])
        return waiting + sum(lane.pending_count() for lane in self._lanes.values())

    def running_count(self) -> int:
        """See `Scheduler.running_count`."""
        return sum(lane.running_count() for lane in self._lanes.values())

    def add(self, instance: Instance) -> None:
        """See `Scheduler.add`."""
        lane = self._lanes.get(instance)
        if lane is None:
            lane = self._lanes[instance] = self._make_lane(instance, self._lane_count, self._context)
            self._lane_count += 1
        lane.is_open, lane.on_free = True, None
        self._slots.add_all(lane)
        lane.resume()
        self._fill_slots()

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        """See `Scheduler.remove`. With `on_free` the sequences that the instance has go on there until they end; without it,
        when its worker has died or the model closes, they end now, since what the instance knew of them is gone.
        """
        lane = self._lanes.get(instance)
        if lane is None:
            if on_free is not None:
                on_free()
            return
        # Who closes the model takes an instance out that is leaving already.
        lane.is_open, lane.on_free = False, on_free or lane.on_free
        self._slots.remove_all(lane)
        if on_free is None:
            lane.pause()
            self._end_all(lane, unavailable(f"instance '{instance.name}' has ended, and with it the sequences that it served"))
        self.check_lane(lane)

    def check_lane(self, lane: InstanceLane) -> None:
        """See `LaneOwner.check_lane`."""
        if lane.is_open or lane.sequences():
            return
        known = self._lanes.get(lane.instance)
        if known is None or known.running_count():
            return
        del self._lanes[lane.instance]
        if lane.on_free is not None:
            lane.on_free()
        self._check_idle()

    def fail_queued(self, error: InferenceServerError) -> None:
        """See `Scheduler.fail_queued`. A sequence that lost a request is over."""
        for lane in self._lanes.values():
            lane.fail_queued(error)
        while self._live:
            self._end(next(iter(self._live)), error)

    def stop(self) -> None:
        """See `Scheduler.stop`. Sequences under way go on when another scheduler sends their requests here."""
        self._is_stopped = True
        self._check_idle()

    def on_idle(self, callback: Callable[[], None]) -> None:
        """See `Scheduler.on_idle`. A stopped scheduler that expects the rest of its sequences isn't idle before they have
        ended.
        """
        self._idle_callbacks.append(callback)
        self._check_idle()

    def on_no_sequences(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when no sequence is under way any more, of which there must be one now."""
        self._empty_callbacks.append(callback)

    def end_request(self, sequence: LiveSequence, request: InferRequest) -> None:
        """See `LaneOwner.end_request`."""
        if sequence not in self._live:
            return
        assert request.sequence is not None
        if self._is_iterative:
            self._repeat(sequence, request)
            return
        if request.sequence.is_end:
            self._leave(sequence)
            return
        if request.is_cancelled and sequence.state is not None:
            self._end(sequence, cancelled())
            return
        self._keep_alive(sequence, self._clock.now_ns())
        if sequence.waiting and sequence.lane is not None:
            sequence.lane.wake(sequence)
        self._check_idle()

    def _repeat(self, sequence: LiveSequence, request: InferRequest) -> None:
        """Let a request run again if the model wants it and somebody still waits for it; otherwise its sequence has ended."""
        is_wanted, request.is_rescheduled = request.is_rescheduled, False
        if not is_wanted or request.responder.has_ended or sequence.lane is None:
            self._end(sequence, cancelled())
            return
        sequence.is_repeated = True
        request.sequence = Sequence(sequence.id, is_start=False, is_end=False)
        request.enqueued_ns = self._clock.now_ns()
        sequence.waiting.append(request)
        request.on_cancel = partial(self._drop, sequence)
        self._keep_alive(sequence, request.enqueued_ns)
        sequence.lane.wake(sequence)

    def give_up(self, sequence: LiveSequence) -> None:
        """See `LaneOwner.give_up`."""
        self._end(sequence, cancelled())

    def _checked(self, request: InferRequest) -> Sequence:
        if request.batch_size > 1:
            raise invalid_argument(
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements of sequence batcher"
            )
        if request.sequence is None:
            raise invalid_argument(
                f"inference request to model '{self._model}' must specify a non-zero or non-empty correlation ID"
            )
        self._controls.check_id(request.sequence)
        return request.sequence

    def _try_hold(self) -> None:
        """Let everything run when enough is queued, in slots and in the backlog."""
        in_backlog = sum(len(sequence.waiting) for sequence in self._backlog)
        if not self._context.hold.is_on(self.pending_count() - in_backlog, in_backlog):
            for sequence in self._live:
                if sequence.lane is not None:
                    sequence.lane.wake(sequence)

    def _continue_elsewhere(self, request: InferRequest, told: Sequence) -> None:
        for predecessor in self._predecessors:
            if predecessor.knows(told.id):
                predecessor.enqueue(request)
                return
        raise invalid_argument(
            f"inference request for sequence {told.id} to model '{self._model}' must specify the START flag on the first "
            f"request of the sequence"
        )

    def _begin(self, sequence_id: int | str) -> LiveSequence:
        sequence = LiveSequence(sequence_id, SequenceState(self._states) if self._states else None)
        self._open[sequence_id] = sequence
        self._live[sequence] = None
        if not self._slots.take(sequence):
            self._backlog[sequence] = None
        return sequence

    def _end(self, sequence: LiveSequence, error: InferenceServerError) -> None:
        """Forget `sequence`: what still waits of it fails with `error`, its slot goes to the next one."""
        failed = sequence.take_own()
        self._leave(sequence)
        for request in failed:
            request.on_cancel = None  # First all of them: the sink of one may cancel another.
        for request in failed:
            request.responder.fail(error)
        self._check_idle()
        if not self._live:
            callbacks, self._empty_callbacks = self._empty_callbacks, []
            for callback in callbacks:
                callback()

    def _leave(self, sequence: LiveSequence) -> None:
        """Forget a sequence that is over; what waits of it is the next one of the same id, behind those in the backlog."""
        self._live.pop(sequence, None)
        self._backlog.pop(sequence, None)
        if self._open.get(sequence.id) is sequence:
            del self._open[sequence.id]
        lane = self._lanes.get(sequence.lane.instance) if sequence.lane is not None else None
        if lane is not None:
            self._slots.give_back(sequence, is_open=lane.is_open)
            self._fill_slots()
            self.check_lane(lane)
        if sequence.waiting:
            self._admit_next(sequence)
        self._check_idle()

    def _admit_next(self, over: LiveSequence) -> None:
        sequence = self._begin(over.id)
        sequence.waiting, sequence.is_closing = over.waiting, over.is_closing
        for request in sequence.waiting:
            request.on_cancel = partial(self._drop, sequence)
        over.waiting = deque()
        self._keep_alive(sequence, self._clock.now_ns())
        if sequence.lane is not None:
            sequence.lane.wake(sequence)
            return
        for request in sequence.waiting:
            if request.timeout_us:
                self._limit_wait(sequence, request.enqueued_ns + request.timeout_us * 1000)

    def _end_all(self, lane: _AnyLane, error: InferenceServerError) -> None:
        lane.fail_queued(error)
        for sequence in lane.sequences():
            self._end(sequence, error)

    def _fill_slots(self) -> None:
        while self._backlog:
            sequence = next(iter(self._backlog))
            if not self._slots.take(sequence):
                return
            del self._backlog[sequence]
            assert sequence.lane is not None
            self._keep_alive(sequence, self._clock.now_ns())
            sequence.lane.wake(sequence)

    def _drop(self, sequence: LiveSequence, request: InferRequest) -> None:
        """A client gave up a waiting request: with it ends its sequence, when its turn has come."""
        if sequence.running is None and sequence.waiting and sequence.waiting[0] is request:
            self._end(sequence, cancelled())
        else:
            request.inputs = {}  # It stays where it is, its tensors needn't.

    def _keep_alive(self, sequence: LiveSequence, now_ns: int) -> None:
        sequence.active_ns = now_ns
        self._live.move_to_end(sequence)
        self._idle_alarm.wake_at(next(iter(self._live)).active_ns + self._idle_ns)

    def _end_idle(self) -> None:
        """End the sequences that nothing came of and nothing ran of for the idle time; the longest idle is the first."""
        now_ns = self._clock.now_ns()
        while self._live:
            sequence = next(iter(self._live))
            if now_ns - sequence.active_ns < self._idle_ns:
                self._idle_alarm.wake_at(sequence.active_ns + self._idle_ns)
                return
            if sequence.is_busy or sequence.lane is None:
                self._keep_alive(sequence, now_ns)
            else:
                _log.debug("sequence %r of model '%s' is idle for too long and ends", sequence.id, self._model)
                self._end(sequence, cancelled())

    def _limit_wait(self, sequence: LiveSequence, deadline_ns: int) -> None:
        sequence.deadline_ns = min(sequence.deadline_ns or deadline_ns, deadline_ns)
        self._backlog_alarm.wake_at(sequence.deadline_ns)

    def _expire_backlog(self) -> None:
        now_ns = self._clock.now_ns()
        limited = [sequence for sequence in self._backlog if sequence.deadline_ns]
        for sequence in limited:
            if sequence.deadline_ns <= now_ns:
                text = f"timeout of the corresponding sequence has been expired, which waited for a slot of '{self._model}'"
                self._end(sequence, InferenceServerError(Code.UNAVAILABLE, text, FailureReason.REJECTED))
            else:
                self._backlog_alarm.wake_at(sequence.deadline_ns)

    def _check_idle(self) -> None:
        if not self._idle_callbacks and not self._is_stopped:
            return
        if self._live and (self._expects_rest or any(sequence.is_busy for sequence in self._live)):
            return
        if self.running_count():
            return
        if self._is_stopped:
            self._idle_alarm.cancel()  # They would keep the model in memory until they ring.
            self._backlog_alarm.cancel()
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()
