"""A scheduler whose instances need a resource of which there is enough for all: it is to behave as one without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from naiad.clock import Clock
from naiad.config.plan import InstancePlan, ResourceNeed
from naiad.request.batch import Instance, Scheduler
from naiad.schedulers.rate_limiter.limiter import RateLimiter


class _NobodyWaits:
    def waits_for(self, instance: Instance, model: str) -> bool:
        return False


class Seated:
    """See `Scheduler`. Knows the seat of each instance."""

    def __init__(self, make: Callable[[Sequence[Instance]], Scheduler], instances: Sequence[Instance], clock: Clock) -> None:
        self._limiter = RateLimiter(clock, {("R", None): 100}, _NobodyWaits())
        self._seats: dict[Instance, Instance] = {}
        self._scheduler = make([self._seat(instance) for instance in instances])

    def _seat(self, instance: Instance) -> Instance:
        if instance not in self._seats:
            plan = InstancePlan(instance.name, "CPU", -1, "m", False, (ResourceNeed("R", 1, True),), 1)
            self._seats[instance] = self._limiter.limit("m", plan, instance)
        return self._seats[instance]

    def add(self, instance: Instance) -> None:
        self._scheduler.add(self._seat(instance))

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        self._scheduler.remove(self._seat(instance), on_free)

    def __getattr__(self, name: str):
        return getattr(self._scheduler, name)
