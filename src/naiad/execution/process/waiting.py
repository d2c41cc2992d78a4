"""Nested calls that would wait for each other for ever.

Owns who waits for whom among worker instances. An instance whose `execute` waits for a model can't take a batch; when all
instances of that model wait in turn, and in the end for the first one, nothing ever ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Protocol


class WaitingInstance(Protocol):
    """An instance, as far as waiting is concerned."""

    @property
    def is_busy(self) -> bool:
        """Whether a batch is in its `execute`."""

    @property
    def awaited_models(self) -> Collection[str]:
        """The names of the models that the batch has called and not heard the end of."""


class WaitGraph:
    """The instances of all models in worker processes, by model name. Loop thread only. `parts` returns the models that an
    ensemble of that name has in its steps, none for other models.
    """

    def __init__(self) -> None:
        self.parts: Callable[[str], Collection[str]] = lambda _name: ()
        self._instances: defaultdict[str, list[WaitingInstance]] = defaultdict(list)

    def add(self, model: str, instance: WaitingInstance) -> None:
        """Know an instance of `model`."""
        self._instances[model].append(instance)

    def remove(self, model: str, instance: WaitingInstance) -> None:
        """Forget an instance."""
        self._instances[model].remove(instance)
        if not self._instances[model]:
            del self._instances[model]

    def is_stuck(self, model: str) -> bool:
        """Return whether a request to `model` could never be answered as things are. Models without workers never wait,
        ensembles as the models of their steps do.
        """
        return not self._can_go_on(model, frozenset())

    def waits_for(self, instance: object, model: str) -> bool:
        """Return whether what runs in `instance` can't end before some request to `model` has. What isn't a worker never waits.

        Instances that could take the calls it waits for are taken to be held up by nothing else.
        """
        return self._waits_for(getattr(instance, "awaited_models", ()), model, frozenset())

    def _waits_for(self, awaited: Collection[str], model: str, seen: frozenset[str]) -> bool:
        if model in awaited:
            return True
        for name in awaited:
            if name in seen:
                continue
            instances, further = self._instances.get(name), seen | {name}
            if not instances:
                if self._waits_for(self.parts(name), model, further):
                    return True
            elif all(each.is_busy and self._waits_for(each.awaited_models, model, further) for each in instances):
                return True
        return False

    def _can_go_on(self, model: str, waiting: frozenset[str]) -> bool:
        if model in waiting:
            return False
        instances = self._instances.get(model)
        further = waiting | {model}
        if not instances:
            return all(self._can_go_on(name, further) for name in self.parts(model))
        return any(
            not instance.is_busy or all(self._can_go_on(name, further) for name in instance.awaited_models)
            for instance in instances
        )
