"""The scheduler of an ensemble: each request is a run through the steps, which are requests of other models.

Owns the runs of one ensemble, and how many calls of a step may be open at once. It has no queue and no instances.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, unavailable
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import CloseReason, Instance
from naiad.request.request import InferRequest
from naiad.request.response import Timing
from naiad.schedulers import refusals
from naiad.schedulers.ensemble.flow import Firing
from naiad.schedulers.ensemble.graph import Graph, StepModel
from naiad.schedulers.ensemble.members import Member, Members
from naiad.schedulers.ensemble.run import EnsembleRun


class EnsembleScheduler:
    """See `Scheduler`. `plan` may be replaced by one with the same steps, for the requests from then on."""

    def __init__(self, plan: ModelPlan, members: Members, statistics: ModelStatistics) -> None:
        assert plan.ensemble is not None
        self.plan = plan
        self.namespace = ""
        self._steps = plan.ensemble.steps
        self._members = members
        self._statistics = statistics
        self._limit = plan.ensemble.max_inflight_requests
        self._open = [0] * len(self._steps)
        self._waiting: list[deque[tuple[EnsembleRun, Firing[Any]]]] = [deque() for _ in self._steps]
        self._runs: set[EnsembleRun] = set()
        self._graph: tuple[list[ModelPlan], Graph] | None = None
        self._is_stopped = False
        self._idle_callbacks: list[Callable[[], None]] = []

    def enqueue(self, request: InferRequest) -> None:
        """See `Scheduler.enqueue`. The models of the steps are those of now: a reload takes effect for the next request."""
        if self._is_stopped:
            raise refusals.stopping()
        members = self._hold_members(request)
        run = EnsembleRun(request, self.plan, self._graph_of(members), members, self)
        self._runs.add(run)
        run.start()

    def pending_count(self) -> int:
        """See `Scheduler.pending_count`: those whose steps run count, too, as what is to be done for them isn't."""
        return len(self._runs)

    def running_count(self) -> int:
        """See `Scheduler.running_count`."""
        return len(self._runs)

    @property
    def close_counts(self) -> Mapping[CloseReason, int]:
        """See `Scheduler.close_counts`: it joins no requests."""
        return {}

    def add(self, instance: Instance) -> None:
        """See `Scheduler.add`: an ensemble has no instances. Raises TypeError."""
        raise TypeError(f"ensemble '{self.plan.name}' has no instances, it can't take '{instance.name}'")

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        """See `Scheduler.remove`. Raises TypeError."""
        raise TypeError(f"ensemble '{self.plan.name}' has no instances, it can't give up '{instance.name}'")

    def fail_queued(self, error: InferenceServerError) -> None:
        """See `Scheduler.fail_queued`: every open request."""
        for run in list(self._runs):
            run.fail(error)

    def stop(self) -> None:
        """See `Scheduler.stop`."""
        self._is_stopped = True

    def on_idle(self, callback: Callable[[], None]) -> None:
        """See `Scheduler.on_idle`."""
        self._idle_callbacks.append(callback)
        self._check_idle()

    # See `RunOwner`.

    def may_call(self, run: EnsembleRun, firing: Firing[Any]) -> bool:
        """See `RunOwner.may_call`."""
        step = firing.step
        if self._limit and self._open[step] >= self._limit:
            self._waiting[step].append((run, firing))
            return False
        self._open[step] += 1
        return True

    def call_ended(self, step: int) -> None:
        """See `RunOwner.call_ended`. The place goes to the next who waits."""
        self._open[step] -= 1
        while self._waiting[step] and self._open[step] < self._limit:
            run, firing = self._waiting[step].popleft()
            self._open[step] += 1
            run.resume(firing)

    def record(self, request: InferRequest, timing: Timing) -> None:
        """See `RunOwner.record`. A request is one execution of the ensemble."""
        self._statistics.record_execution(request.batch_size, 1, *timing)

    def forget(self, run: EnsembleRun) -> None:
        """See `RunOwner.forget`."""
        for step, waiting in enumerate(self._waiting):
            if waiting:
                self._waiting[step] = deque(entry for entry in waiting if entry[0] is not run)

    def run_ended(self, run: EnsembleRun) -> None:
        """See `RunOwner.run_ended`."""
        self._runs.discard(run)
        self._check_idle()

    def _hold_members(self, request: InferRequest) -> list[Member]:
        held: list[Member] = []
        try:
            for step in self._steps:
                held.append(self._members.hold(step, request, self.namespace))  # noqa: PERF401 - a failure lets go of the others
        except InferenceServerError as error:
            for member in held:
                member.let_go()
            text = f"ensemble '{self.plan.name}' contains models that are not available: {error.message}"
            raise unavailable(text) from error
        return held

    def _graph_of(self, members: list[Member]) -> Graph:
        plans = [member.plan for member in members]
        if self._graph is None or any(new is not old for new, old in zip(plans, self._graph[0])):
            models = [StepModel(plan.is_decoupled, frozenset(plan.inputs_by_name) - plan.required_inputs) for plan in plans]
            self._graph = plans, Graph(self._steps, models, self.plan.inputs_by_name)
        return self._graph[1]

    def _check_idle(self) -> None:
        if not self._idle_callbacks or self._runs:
            return
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()
