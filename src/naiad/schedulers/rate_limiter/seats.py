"""What stands for the instances of one model at its scheduler: themselves, or what waits for their resources.

Owns that mapping; without a rate limiter there is nothing in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from naiad.config.plan import InstancePlan
from naiad.request.batch import Instance
from naiad.schedulers.rate_limiter.limiter import RateLimiter


class Seats:
    """The seats of one model. Loop thread only. Raises INVALID_ARGUMENT when the resources of `plans` can't be."""

    def __init__(self, limiter: RateLimiter | None, model: str, plans: Sequence[InstancePlan]) -> None:
        self._limiter = limiter
        self._model = model
        self._seats: dict[Instance, Instance] = {}
        if limiter is not None:
            limiter.check(plans)

    def __bool__(self) -> bool:
        return bool(self._seats)

    def of(self, instance: Instance) -> Instance:
        """Return what the scheduler knows `instance` as."""
        return self._seats.get(instance, instance)

    def take(self, instances: Sequence[Instance], plans: Sequence[InstancePlan]) -> None:
        """Give each new instance its seat. Raises as the class, and then none has one."""
        if self._limiter is None:
            return
        self._limiter.check(plans)
        for instance, plan in zip(instances, plans):
            seat = self._limiter.limit(self._model, plan, instance)
            if seat is not instance:
                self._seats[instance] = seat

    def leave(self, instance: Instance) -> None:
        """Forget the seat of an instance that is no more."""
        seat = self._seats.pop(instance, None)
        if seat is not None and self._limiter is not None:
            self._limiter.forget(seat)
