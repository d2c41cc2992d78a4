"""Instances that run only when they have their resources, and what hands these out.

Owns the effects: whose batch waits, the timer that looks for standstills. Doesn't own the decision (`policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from naiad.clock import Clock
from naiad.config.plan import InstancePlan
from naiad.errors import InferenceServerError, unavailable
from naiad.request.batch import Batch, Instance
from naiad.schedulers.alarm import Alarm
from naiad.schedulers.rate_limiter.capacity import capacity, needs_of
from naiad.schedulers.rate_limiter.policy import GLOBAL, Claim, Resource, ResourcePolicy

STALL_NS = 1_000_000_000
"""How long nothing may move before those who can run may, and before a circle is looked for again."""

OnDone = Callable[[Instance], None]


class Waits(Protocol):
    """Who knows which instance waits for the answer of which model."""

    def waits_for(self, instance: Instance, model: str) -> bool:
        """Return whether `instance` can't end before some request to `model` has."""


class RateLimiter:
    """The resources of all models of a server. Loop thread only. `limits` are the operator's counts by name and device."""

    def __init__(self, clock: Clock, limits: Mapping[tuple[str, int | None], int], waits: Waits) -> None:
        self._clock = clock
        self._limits = limits
        self._waits = waits
        self._policy = ResourcePolicy()
        self._limited: dict[Claim, LimitedInstance] = {}
        self._alarm = Alarm(clock, self._look)
        self._is_pumping = False
        self._moves = 0
        self._moves_seen = 0

    def check(self, instances: Sequence[InstancePlan]) -> None:
        """Raise INVALID_ARGUMENT when `instances` can't be beside those that there are."""
        capacity([*(claim.needs for claim in self._limited), *map(needs_of, instances)], self._limits)

    def limit(self, model: str, plan: InstancePlan, instance: Instance) -> Instance:
        """Return what stands for `instance` at a scheduler: itself when it needs nothing. Raises as `check`."""
        needs = needs_of(plan)
        if not needs:
            return instance
        self.check([plan])
        claim = Claim(needs, plan.priority, self._policy.lowest_score())
        limited = self._limited[claim] = LimitedInstance(self, model, instance, claim)
        self._count()
        return limited

    def forget(self, instance: Instance) -> None:
        """Know an instance no longer; nothing runs there. What waits fails."""
        if not isinstance(instance, LimitedInstance) or instance.claim not in self._limited:
            return
        if instance.claim.is_waiting:
            self.give_up(instance.claim)
            instance.refuse(unavailable(f"model '{instance.model}' was unloaded"))
        del self._limited[instance.claim]
        self._count()

    def waiting_count(self) -> int:
        """Return how many instances wait for resources with a batch."""
        return len(tuple(self._policy.waiting))

    def enqueue(self, claim: Claim) -> None:
        """Let an instance run as soon as it has its resources, maybe before this returns."""
        self._policy.wait(claim)
        self._pump()
        if claim.is_waiting:
            self._refuse_if_circular(claim)
            self._alarm.wake_at(self._clock.now_ns() + STALL_NS)

    def release(self, claim: Claim) -> None:
        """Take an instance's resources back."""
        self._moves += 1
        self._policy.release(claim)
        self._pump()

    def give_up(self, claim: Claim) -> None:
        """Let an instance wait no longer; others may go before it now."""
        self._policy.give_up(claim)
        self._pump()

    def _pump(self, *, is_stalled: bool = False) -> None:
        """Let everyone run who can; a run may end before it returns, and then others can."""
        if self._is_pumping:
            return
        self._is_pumping = True
        while (claim := self._policy.next(is_stalled=is_stalled)) is not None:
            self._moves += 1
            self._limited[claim].start()
        self._is_pumping = False

    def _look(self) -> None:
        waiting = tuple(self._policy.waiting)
        if not waiting:
            return
        if self._moves == self._moves_seen:
            self._pump(is_stalled=True)
        self._moves_seen = self._moves
        for claim in waiting:
            self._refuse_if_circular(claim)
        self._alarm.wake_at(self._clock.now_ns() + STALL_NS)

    def _refuse_if_circular(self, claim: Claim) -> None:
        """Fail a batch whose resource is only with those that wait for its own model: neither could ever go on."""
        if not claim.is_waiting:
            return
        limited = self._limited[claim]
        for resource in self._policy.lacking(claim):
            holders = [self._limited[holder] for holder in self._policy.holders(resource)]
            if holders and all(self._waits.waits_for(holder.inner, limited.model) for holder in holders):
                names = ", ".join(sorted({holder.model for holder in holders}))
                self._policy.give_up(claim)
                limited.refuse(
                    unavailable(
                        f"model '{limited.model}' needs resource '{_text(resource)}', which '{names}' holds while it waits for "
                        f"the answer of '{limited.model}': neither could ever end. Give the resource a higher count "
                        "(--rate-limit-resource), or don't let one call the other"
                    )
                )
                self._pump()
                return

    def _count(self) -> None:
        self._policy.capacity = capacity([claim.needs for claim in self._limited], self._limits)


class LimitedInstance:
    """See `Instance`. Stands before `inner` and takes one batch at a time, which runs at once when `acquire` has got the
    resources for it and waits for them otherwise: schedulers that can form a batch late ask first, so that it may grow.
    """

    def __init__(self, limiter: RateLimiter, model: str, inner: Instance, claim: Claim) -> None:
        self._limiter = limiter
        self.model = model
        self.inner = inner
        self.claim = claim
        self._batch: Batch | None = None
        self._on_done: OnDone | None = None
        self._is_acquiring = False
        self.on_grant: Callable[[LimitedInstance], None] | None = None
        self.on_refuse: Callable[[LimitedInstance, InferenceServerError], None] | None = None

    @property
    def name(self) -> str:
        """See `Instance.name`."""
        return self.inner.name

    @property
    def run_length(self) -> int:
        """See `Instance.run_length`: one at a time, as others wait for the resources."""
        return 1

    @property
    def open_count(self) -> int:
        """See `Instance.open_count`."""
        return self.inner.open_count

    @property
    def on_open_zero(self) -> Callable[[], None]:
        """See `Instance.on_open_zero`."""
        return self.inner.on_open_zero

    @on_open_zero.setter
    def on_open_zero(self, callback: Callable[[], None]) -> None:
        self.inner.on_open_zero = callback

    async def check_ready(self) -> bool:
        """See `Instance.check_ready`."""
        return await self.inner.check_ready()

    def acquire(self) -> bool:
        """Return whether the next batch may run. When not, `on_grant` is called as soon as it may, or `on_refuse`, maybe before
        this returns, when it never could.
        """
        if self.claim.is_running:
            return True
        self._is_acquiring = True
        self._limiter.enqueue(self.claim)
        self._is_acquiring = False
        return self.claim.is_running

    def give_back(self) -> None:
        """Want nothing any more: give up waiting, or return what nothing has run with."""
        if self.claim.is_waiting:
            self._limiter.give_up(self.claim)
        elif self.claim.is_running:
            self.claim.score -= self.claim.priority
            self._limiter.release(self.claim)

    def submit(self, batch: Batch, on_done: OnDone) -> None:
        """See `Instance.submit`."""
        self._batch, self._on_done = batch, on_done
        if self.claim.is_running:
            self._run()
        else:
            self._limiter.enqueue(self.claim)

    def submit_run(self, batches: list[Batch], on_done: OnDone) -> None:
        """See `Instance.submit_run`: a run has one batch here."""
        for batch in batches:
            self.submit(batch, on_done)

    def start(self) -> None:
        """Go on: the resources are there."""
        if self._batch is not None:
            self._run_what_is_left(self._batch)
        elif not self._is_acquiring and self.on_grant is not None:
            self.on_grant(self)

    def refuse(self, error: InferenceServerError) -> None:
        """Fail what waits."""
        if self._batch is None:
            if self.on_refuse is not None:
                self.on_refuse(self, error)
            return
        batch, on_done = self._take()
        for request in batch.requests:
            request.responder.fail(error)
        on_done(self)

    def _run(self) -> None:
        batch, on_done = self._take()
        self.inner.submit(batch, partial(self._end, on_done))

    def _run_what_is_left(self, batch: Batch) -> None:
        """Run a batch that has waited without those that were given up meanwhile."""
        left = [request for request in batch.requests if not request.responder.has_ended]
        if not left:
            _, on_done = self._take()
            self._end(on_done, self)
            return
        if len(left) < len(batch.requests) and not batch.is_positional:
            self._batch = Batch(left, sum([request.batch_size for request in left]), is_counted=batch.is_counted)
        self._run()

    def _take(self) -> tuple[Batch, OnDone]:
        batch, on_done = self._batch, self._on_done
        assert batch is not None
        assert on_done is not None
        self._batch = self._on_done = None
        return batch, on_done

    def _end(self, on_done: OnDone, _: Instance) -> None:
        self._limiter.release(self.claim)
        on_done(self)


def _text(resource: Resource) -> str:
    name, device = resource
    return name if device == GLOBAL else f"{name} of device {device}"
