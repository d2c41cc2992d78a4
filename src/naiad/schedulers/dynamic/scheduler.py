"""The dynamic batcher of one model version: joins queued requests into batches for whichever instance is free.

Owns the effects: the queue, the timer, the idle instances, the hand-over. Doesn't own the decision, which is
`policy.next_batch`, nor the order of service, which is the queue's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from naiad.clock import Clock
from naiad.config.plan import DynamicBatchingPlan
from naiad.errors import InferenceServerError
from naiad.request.batch import Batch, CloseReason, Instance
from naiad.request.request import InferRequest
from naiad.schedulers.alarm import Alarm
from naiad.schedulers.dynamic.policy import (
    BatchPolicy,
    BatchRules,
    Dispatch,
    FixedPolicy,
    LoadObserver,
    Wait,
)
from naiad.schedulers.hold import Hold
from naiad.schedulers.ordering import ResponseOrder
from naiad.schedulers.overload import OverloadGuard
from naiad.schedulers.queue import PriorityQueue
from naiad.schedulers.rate_limiter.asking import AskingInstances
from naiad.schedulers.refusals import stopping, timeout_expired


class _Running(NamedTuple):
    """The batch that an instance has: its requests, its items, since when, and whether it left requests in the queue."""

    request_count: int
    size: int
    started_ns: int
    is_full: bool


class DynamicScheduler:
    """See `Scheduler`. Loop thread only.

    An instance that becomes free asks for work; a new request asks only while an instance is idle. Both ask for the end of the
    loop's turn, so that what arrived together runs as one batch. Deadlines have a timer of their own: they pass on time however
    busy the instances are. `policy` decides in place of the numbers of `plan`; `observers` learn from the load.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        clock: Clock,
        plan: DynamicBatchingPlan,
        hold: Hold | None = None,
        policy: BatchPolicy | None = None,
        observers: Sequence[LoadObserver] = (),
    ) -> None:
        self._idle = list(reversed(instances))
        self._running: dict[Instance, _Running] = {}
        self._removed: dict[Instance, Callable[[], None] | None] = {}
        self._limited = AskingInstances()
        for instance in instances:
            self._limited.add(instance, self._on_grant, self._on_refuse)
        self._clock = clock
        self._rules = BatchRules.of(plan)
        self._policy: BatchPolicy = policy or FixedPolicy(self._rules)
        self._observers = tuple(observers)
        self._queue = PriorityQueue(plan)
        self._refuses_early = plan.refuses_early
        self._guard = OverloadGuard(plan.max_batch_size) if plan.refuses_early and plan.has_reject_timeout else None
        self._order = ResponseOrder() if plan.preserve_ordering else None
        self._hold = hold
        self._wait: Wait | None = None
        self._alarm = Alarm(clock, self._dispatch)
        self._is_dispatch_due = False
        self._is_dispatching = False
        self._is_stopped = False
        self.close_counts = dict.fromkeys(CloseReason, 0)
        self._idle_callbacks: list[Callable[[], None]] = []

    def enqueue(self, request: InferRequest) -> None:
        """See `Scheduler.enqueue`. The time in the queue counts from here."""
        if self._is_stopped:
            raise stopping()
        if self._is_dispatch_due and not self._is_dispatching and self._queue.is_full_for(request):
            # What waits only for the end of this turn has an instance: it must not fill the queue.
            self._dispatch()
        now_ns = request.enqueued_ns = self._clock.now_ns()
        if self._guard is not None:
            self._check_in_time(request, now_ns)
        elif request.deadline_ns is not None and self._refuses_early:
            self._guard = OverloadGuard(self._rules.max_size)
        deadline_ns = self._queue.add(request, now_ns)
        request.on_cancel = self._drop
        for observer in self._observers:
            observer.arrived(request.batch_size, now_ns)
        if self._order is not None:
            self._order.track(request)
        if deadline_ns is not None:
            self._alarm.wake_at(deadline_ns)
        if self._wait is None or self._wait.is_ended_by(request, self._queue.size, self._rules):
            self._ask()

    def pending_count(self) -> int:
        """See `Scheduler.pending_count`."""
        return len(self._queue)

    def running_count(self) -> int:
        """See `Scheduler.running_count`. A request counts until the whole batch has ended."""
        return sum([running.request_count for running in self._running.values()])

    def instance_counts(self) -> tuple[int, int]:
        """Return how many instances could take a batch now, and how many there are with those that have one."""
        return len(self._idle), len(self._idle) + len(self._running)

    def add(self, instance: Instance) -> None:
        """See `Scheduler.add`."""
        self._removed.pop(instance, None)
        is_waiting = self._limited.add(instance, self._on_grant, self._on_refuse)
        if not is_waiting and instance not in self._running and instance not in self._idle:
            self._idle.append(instance)
            if self._queue:
                self._ask()

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        """See `Scheduler.remove`."""
        if instance in self._idle:
            self._idle.remove(instance)
        self._limited.remove(instance)
        if instance in self._running:
            self._removed[instance] = on_free
        elif on_free is not None:
            on_free()

    def fail_queued(self, error: InferenceServerError) -> None:
        """See `Scheduler.fail_queued`."""
        self._wait = None
        failed = self._queue.take(len(self._queue))
        for request in failed:
            request.on_cancel = None  # First all of them: the sink of one may cancel another.
        for request in failed:
            request.responder.fail(error)
        self._check_idle()

    def stop(self) -> None:
        """See `Scheduler.stop`."""
        self._is_stopped = True
        self._check_idle()

    def on_idle(self, callback: Callable[[], None]) -> None:
        """See `Scheduler.on_idle`."""
        self._idle_callbacks.append(callback)
        self._check_idle()

    def _check_in_time(self, request: InferRequest, now_ns: int) -> None:
        """Raise RefusedError for a request that could only be late; a full queue says so itself."""
        if self._guard is not None and (self._queue or not self._idle) and not self._queue.is_full_for(request):
            busy_since_ns = [running.started_ns for running in self._running.values()]
            self._guard.check(request, self._queue, busy_since_ns, len(self._idle), now_ns)

    def _ask(self) -> None:
        """Dispatch at the end of this turn, when there is an instance for it."""
        if self._hold is not None:
            if self._hold.is_on(len(self._queue)):
                return
            self._hold = None
        if self._idle and not self._is_dispatch_due:
            self._is_dispatch_due = True
            self._clock.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_dispatch_due = False
        self._dispatch()

    def _dispatch(self) -> None:
        """Hand out what is queued now. What sinks add meanwhile waits a turn, so that batches which run in place can't keep the
        loop for themselves.
        """
        self._is_dispatching = True
        self._wait = None
        left = self._queue.size
        try:
            now_ns = self._expire()
            while self._idle and left > 0 and self._hold is None:
                decision = self._policy.decide(self._queue, now_ns)
                if not isinstance(decision, Dispatch):
                    self._wait = decision
                    break
                if self._limited and not self._limited.is_ready(self._idle):
                    continue
                self._submit(decision, now_ns)
                left -= decision.size
                now_ns = self._expire()
        finally:
            # A policy that has a fault must not stop the queue for good.
            self._is_dispatching = False
        if self._limited:
            self._limited.give_back(self._idle)
        self._after_dispatch()

    def _on_grant(self, instance: Instance) -> None:
        self._idle.append(instance)
        if not self._is_dispatching:
            self._dispatch()

    def _on_refuse(self, instance: Instance, error: InferenceServerError) -> None:
        """End the requests that `instance` was to run."""
        self._idle.append(instance)
        decision = self._policy.decide(self._queue, self._clock.now_ns())
        refused = self._queue.take(decision.count) if isinstance(decision, Dispatch) else []
        for request in refused:
            request.on_cancel = None  # First all of them: the sink of one may cancel another.
        for request in refused:
            request.responder.fail(error)
        if self._queue and not self._is_dispatching:
            self._ask()
        self._check_idle()

    def _submit(self, decision: Dispatch, now_ns: int) -> None:
        requests = self._queue.take(decision.count)
        for request in requests:
            request.on_cancel = None
        self.close_counts[decision.reason] += 1
        instance = self._idle.pop()
        self._running[instance] = _Running(decision.count, decision.size, now_ns, bool(self._queue))
        instance.submit(Batch(requests, decision.size), self._on_done)

    def _after_dispatch(self) -> None:
        if self._wait is not None:
            self._alarm.wake_at(self._wait.until_ns)
        elif self._queue:
            self._ask()
        deadline_ns = self._queue.next_deadline_ns()
        if deadline_ns is not None:
            self._alarm.wake_at(deadline_ns)
        self._check_idle()

    def _expire(self) -> int:
        """Refuse the requests that are late now; return the time."""
        now_ns = self._clock.now_ns()
        refused = self._queue.expire(now_ns)
        for request in refused:
            request.on_cancel = None  # First all of them: the sink of one may cancel another.
        for request in refused:
            request.responder.fail(timeout_expired(request))
        return now_ns

    def _on_done(self, instance: Instance) -> None:
        ended = self._running.pop(instance)
        if self._guard is not None:
            self._guard.ran(ended.size, self._clock.now_ns() - ended.started_ns, is_full=ended.is_full)
        if self._observers:
            ended_ns = self._clock.now_ns()
            for observer in self._observers:
                observer.ran(ended.size, ended.started_ns, ended_ns)
        self._take_back(instance)
        if self._is_dispatching:
            return
        if self._queue:
            self._ask()
        else:
            self._check_idle()

    def _take_back(self, instance: Instance) -> None:
        """Take a free instance for the next batch, or let go of one that was removed."""
        if instance not in self._removed:
            self._idle.append(instance)
            return
        on_free = self._removed.pop(instance)
        if on_free is not None:
            on_free()

    def _drop(self, request: InferRequest) -> None:
        """Forget a request that its client gave up; without it a waiting batch may be complete."""
        self._queue.remove(request)
        if self._wait is not None:
            self._ask()
        self._check_idle()

    def _check_idle(self) -> None:
        if self._limited and not self._queue:
            self._idle += self._limited.give_up()
        if self._queue or self._running:
            return
        if self._is_stopped:
            self._alarm.cancel()  # It would keep the model in memory until it rings.
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()
