"""The default scheduler: first in, first out, one request an execution, no limit and no deadline.

Owns the queue of one model version. It has no policy file, since there is nothing to decide.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from naiad.clock import Clock
from naiad.errors import InferenceServerError
from naiad.request.batch import Batch, CloseReason, Instance
from naiad.request.request import InferRequest
from naiad.schedulers import refusals
from naiad.schedulers.rate_limiter.asking import AskingInstances


class DirectScheduler:
    """See `Scheduler`."""

    def __init__(self, instances: Sequence[Instance], clock: Clock) -> None:
        self._idle = list(reversed(instances))
        self._clock = clock
        self._queue: OrderedDict[InferRequest, None] = OrderedDict()
        self._running = 0
        self._running_in: dict[Instance, int] = {}
        self._removed: dict[Instance, Callable[[], None] | None] = {}
        self._limited = AskingInstances()
        for instance in instances:
            self._limited.add(instance, self._on_grant, self._on_refuse)
        self._is_dispatch_due = False
        self._is_dispatching = False
        self._is_stopped = False
        self._idle_callbacks: list[Callable[[], None]] = []

    def enqueue(self, request: InferRequest) -> None:
        """See `Scheduler.enqueue`. What arrives in one turn of the loop is dispatched together, at its end."""
        if self._is_stopped:
            raise refusals.stopping()
        request.on_cancel = self._drop
        self._queue[request] = None
        if self._idle and not self._is_dispatch_due:
            self._dispatch_soon()

    def pending_count(self) -> int:
        """See `Scheduler.pending_count`."""
        return len(self._queue)

    def running_count(self) -> int:
        """See `Scheduler.running_count`."""
        return self._running

    @property
    def close_counts(self) -> Mapping[CloseReason, int]:
        """See `Scheduler.close_counts`: it joins no requests."""
        return {}

    def add(self, instance: Instance) -> None:
        """See `Scheduler.add`."""
        self._removed.pop(instance, None)
        is_waiting = self._limited.add(instance, self._on_grant, self._on_refuse)
        if not is_waiting and instance not in self._running_in and instance not in self._idle:
            self._idle.append(instance)
            if self._queue and not self._is_dispatch_due:
                self._dispatch_soon()

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        """See `Scheduler.remove`."""
        if instance in self._idle:
            self._idle.remove(instance)
        self._limited.remove(instance)
        if instance in self._running_in:
            self._removed[instance] = on_free
        elif on_free is not None:
            on_free()

    def fail_queued(self, error: InferenceServerError) -> None:
        """See `Scheduler.fail_queued`."""
        failed, self._queue = list(self._queue), OrderedDict()
        for request in failed:
            request.on_cancel = None  # First all of them: the sink of one may cancel another.
        for request in failed:
            request.responder.fail(error)
        self._check_idle()

    def stop(self) -> None:
        """See `Scheduler.stop`."""
        self._is_stopped = True

    def on_idle(self, callback: Callable[[], None]) -> None:
        """See `Scheduler.on_idle`."""
        self._idle_callbacks.append(callback)
        self._check_idle()

    def _dispatch_soon(self) -> None:
        self._is_dispatch_due = True
        self._clock.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatch_due = False
        # An instance that runs in place is free again before `submit` returns: this loop goes on with it, without recursion.
        self._is_dispatching = True
        while self._queue and self._idle:
            if self._limited and not self._limited.is_ready(self._idle):
                continue
            instance = self._idle.pop()
            batches = self._take(min(instance.run_length, -(-len(self._queue) // (len(self._idle) + 1))))
            self._running_in[instance] = len(batches)
            self._running += len(batches)
            if len(batches) == 1:
                instance.submit(batches[0], self._on_done)
            else:
                instance.submit_run(batches, self._on_done)
        self._is_dispatching = False
        if self._limited:
            self._limited.give_back(self._idle)
        self._check_idle()

    def _on_grant(self, instance: Instance) -> None:
        self._idle.append(instance)
        if not self._is_dispatching:
            self._dispatch()

    def _on_refuse(self, instance: Instance, error: InferenceServerError) -> None:
        """End the request that `instance` was to run."""
        self._idle.append(instance)
        for batch in self._take(min(len(self._queue), 1)):
            batch.requests[0].responder.fail(error)
        if self._queue and not (self._is_dispatching or self._is_dispatch_due):
            self._dispatch_soon()
        self._check_idle()

    def _take(self, count: int) -> list[Batch]:
        """Take the oldest `count` requests out of the queue, each a batch of its own."""
        batches = []
        for _ in range(count):
            request, _ = self._queue.popitem(last=False)
            request.on_cancel = None
            batches.append(Batch([request], request.batch_size))
        return batches

    def _on_done(self, instance: Instance) -> None:
        self._running -= self._running_in.pop(instance)
        self._take_back(instance)
        if not self._is_dispatching and not self._is_dispatch_due:
            self._dispatch()

    def _take_back(self, instance: Instance) -> None:
        """Take a free instance for the next batch, or let go of one that was removed."""
        if instance not in self._removed:
            self._idle.append(instance)
            return
        on_free = self._removed.pop(instance)
        if on_free is not None:
            on_free()

    def _drop(self, request: InferRequest) -> None:
        del self._queue[request]
        self._check_idle()

    def _check_idle(self) -> None:
        if self._limited and not self._queue:
            self._idle += self._limited.give_up()
        if not self._idle_callbacks or self._queue or self._running:
            return
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()
