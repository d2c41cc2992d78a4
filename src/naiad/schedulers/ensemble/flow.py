"""Which steps of an ensemble are due for one request, and what its answers are: decided from the tensors that are there.

Owns the tensors of the request, of any type, from the moment they are there until the last who reads them has them. A pure
state machine: who runs the steps tells it what came of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from naiad.schedulers.ensemble.graph import Consumer, Graph, Path

T = TypeVar("T")


class Iteration(Generic[T]):
    """What belongs to one response of a decoupled step, or to the request itself: the tensors that are known, None for one
    that won't come, and how many tensors each consumer still waits for.
    """

    __slots__ = ("left", "parent", "path", "values", "waiting")

    def __init__(self, parent: Iteration[T] | None, path: Path) -> None:
        self.parent = parent
        self.path = path
        self.values: dict[str, T | None] = {}
        self.waiting: dict[Consumer, int] = {}
        self.left: dict[str, int] = {}

    def at(self, path: Path) -> Iteration[T]:
        """Return the iteration of `path`, which is the own one or the beginning of it, that this one is part of."""
        iteration = self
        while len(iteration.path) > len(path):
            assert iteration.parent is not None
            iteration = iteration.parent
        return iteration


class Firing(Generic[T]):
    """A step that is to run now, once, with `inputs` by the names of its model; absent optional inputs are not in it."""

    __slots__ = ("consumer", "inputs", "is_answered", "iteration")

    def __init__(self, consumer: Consumer, iteration: Iteration[T], inputs: dict[str, T]) -> None:
        self.consumer = consumer
        self.iteration = iteration
        self.inputs = inputs
        self.is_answered = False

    @property
    def step(self) -> int:
        """The index of the step."""
        return self.consumer.step


class Flow(Generic[T]):
    """See the module. `firings` and `answers` are taken out by who runs the steps; each firing must be ended by `end`.

    `is_stuck`: an answer lacks a tensor that can't come any more. `open_count` is the number of firings that haven't ended.
    """

    def __init__(self, graph: Graph, outputs: Collection[str], inputs: Mapping[str, T | None]) -> None:
        wiring = graph.wiring(outputs)
        self._wiring = wiring
        self.firings: deque[Firing[T]] = deque()
        self.answers: deque[dict[str, T]] = deque()
        self.is_stuck = False
        self.open_count = 0
        self._due: deque[tuple[Consumer, Iteration[T]]] = deque()
        self._live: dict[Path, dict[Iteration[T], None]] = {path: {} for path in wiring.begun}
        self._begin(Iteration(None, ()), inputs)
        self._settle()

    def take(self, firing: Firing[T], outputs: Mapping[str, T]) -> None:
        """Take a response of a step, by the names of its model; outputs that aren't in it are absent for who reads them."""
        consumer, iteration = firing.consumer, firing.iteration
        if consumer.is_decoupled:
            values = {tensor: outputs.get(name) for name, tensor in consumer.writes}
            self._begin(Iteration(iteration, (*iteration.path, consumer.step)), values)
        elif not firing.is_answered:
            firing.is_answered = True
            for name, tensor in consumer.writes:
                self._resolve(iteration, tensor, outputs.get(name))
        self._settle()

    def end(self, firing: Firing[T]) -> None:
        """Take that a step gives no further response to this firing."""
        if not firing.is_answered and not firing.consumer.is_decoupled:
            self.take(firing, {})
        self.open_count -= 1

    def _begin(self, iteration: Iteration[T], values: Mapping[str, T | None]) -> None:
        """Begin an iteration with the tensors that make it."""
        live = self._live.get(iteration.path)
        if live is None:
            return  # Nobody waits for anything of it.
        live[iteration] = None
        for tensor, value in values.items():
            self._keep(iteration, tensor, value)
        for consumer in self._wiring.begun[iteration.path]:
            missing = 0
            for tensor in consumer.tensors:
                missing += tensor not in self._home(iteration, tensor).values
            iteration.waiting[consumer] = missing
            if not missing:
                self._due.append((consumer, iteration))

    def _resolve(self, iteration: Iteration[T], tensor: str, value: T | None) -> None:
        """Make a tensor known, or that it won't come, to everyone who waits for it in this iteration and those after it."""
        self._keep(iteration, tensor, value)
        for consumer in self._wiring.readers.get(tensor, ()):
            for later in self._live[consumer.path]:
                if consumer in later.waiting and (later is iteration or later.at(iteration.path) is iteration):
                    later.waiting[consumer] -= 1
                    if not later.waiting[consumer]:
                        self._due.append((consumer, later))

    def _keep(self, iteration: Iteration[T], tensor: str, value: T | None) -> None:
        wiring = self._wiring
        if tensor in wiring.local:
            iteration.left[tensor] = wiring.local[tensor]
        iteration.values[tensor] = value if tensor in wiring.readers else None

    def _settle(self) -> None:
        """Let everything that has all it waits for be done."""
        while self._due:
            consumer, iteration = self._due.popleft()
            found = {name: self._home(iteration, tensor).values[tensor] for name, tensor in consumer.reads}
            for tensor in consumer.tensors:
                self._release(self._home(iteration, tensor), tensor)
            self._be_done(consumer, iteration)
            present = {name: value for name, value in found.items() if value is not None}
            is_complete = len(present) == len(found) or (found.keys() - present.keys()) <= consumer.optional
            if consumer is self._wiring.answer:
                self.is_stuck = self.is_stuck or not is_complete
                if is_complete:
                    self.answers.append(present)
            elif is_complete:
                self.open_count += 1
                self.firings.append(Firing(consumer, iteration, present))
            elif not consumer.is_decoupled:
                for _, tensor in consumer.writes:
                    self._resolve(iteration, tensor, None)

    def _home(self, iteration: Iteration[T], tensor: str) -> Iteration[T]:
        """Return the iteration that has the tensor: this one, or one that it is part of."""
        path = self._wiring.paths[tensor]
        return iteration if len(path) == len(iteration.path) else iteration.at(path)

    def _release(self, iteration: Iteration[T], tensor: str) -> None:
        """One who reads the tensor has it; after the last it is let go, as its memory may be large."""
        if tensor in iteration.left:
            iteration.left[tensor] -= 1
            if not iteration.left[tensor]:
                iteration.values[tensor] = None

    def _be_done(self, consumer: Consumer, iteration: Iteration[T]) -> None:
        del iteration.waiting[consumer]
        if not iteration.waiting and iteration.path not in self._wiring.keeping:
            del self._live[iteration.path][iteration]
