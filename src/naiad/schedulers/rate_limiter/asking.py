"""The instances of a scheduler that need resources before a batch is formed for them.

Owns who asks and who has to give back. Doesn't own the batches; without a rate limiter there is nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from naiad.errors import InferenceServerError
from naiad.request.batch import Instance
from naiad.schedulers.rate_limiter.limiter import LimitedInstance

OnGrant = Callable[[Instance], None]
OnRefuse = Callable[[Instance, InferenceServerError], None]


class AskingInstances:
    """False when no instance needs resources. Loop thread only."""

    def __init__(self) -> None:
        self._limited: dict[Instance, LimitedInstance] = {}
        self._waiting: dict[Instance, LimitedInstance] = {}

    def __bool__(self) -> bool:
        return bool(self._limited)

    def add(self, instance: Instance, on_grant: OnGrant, on_refuse: OnRefuse) -> bool:
        """Know `instance` if it needs resources; return whether it waits for them already.

        `on_grant` is called when it had to wait and has them, `on_refuse` when it never could get them, with the error of what
        it was to run; in both cases it is idle again.
        """
        if isinstance(instance, LimitedInstance):
            self._limited[instance] = instance
            instance.on_grant, instance.on_refuse = partial(self._grant, on_grant), partial(self._refuse, on_refuse)
        return instance in self._waiting

    def remove(self, instance: Instance) -> None:
        """Forget `instance`, which waits no longer; what runs there goes on."""
        limited = self._limited.pop(instance, None)
        if limited is None:
            return
        limited.on_grant = limited.on_refuse = None
        if self._waiting.pop(instance, None) is not None:
            limited.give_back()

    def is_ready(self, idle: list[Instance]) -> bool:
        """Return whether the last of `idle` may run a batch. When not, `idle` and the queue may be others now: decide again."""
        limited = self._limited.get(idle[-1])
        if limited is None or limited.claim.is_running:
            return True
        instance = idle.pop()
        self._waiting[instance] = limited
        if limited.acquire():
            del self._waiting[instance]
            idle.append(instance)
        return False

    def give_up(self) -> list[Instance]:
        """Let nobody wait: there is nothing to run. Return those that are idle again."""
        waiting, self._waiting = self._waiting, {}
        for limited in waiting.values():
            limited.give_back()
        return list(waiting)

    def give_back(self, idle: Iterable[Instance]) -> None:
        """Return the resources of those of `idle` that have some and nothing to run."""
        unused = [instance for instance in idle if instance in self._limited and self._limited[instance].claim.is_running]
        for instance in unused:
            self._limited[instance].give_back()

    def _grant(self, on_grant: OnGrant, limited: LimitedInstance) -> None:
        del self._waiting[limited]
        on_grant(limited)

    def _refuse(self, on_refuse: OnRefuse, limited: LimitedInstance, error: InferenceServerError) -> None:
        del self._waiting[limited]
        on_refuse(limited, error)
