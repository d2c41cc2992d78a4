"""The steps of an ensemble as a graph: who reads which tensor, and which tensors come once and which any number of times.

Owns what is the same for all requests as long as the models of the steps stay. What one request does is in `flow`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from naiad.config.plan import StepPlan

Path = tuple[int, ...]
"""The decoupled steps that a tensor has come through, in order. A tensor with an empty path comes once; one with `(2,)` once
for each response of step 2, `(2, 5)` once for each response of step 5 to one of those.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Consumer:
    """What waits for tensors: a step, or with `step` -1 the answer to the client.

    `reads` are pairs of a name and the tensor for it; `optional` the names that may stay without. It is due once for each
    iteration of `path`. `writes` are pairs of an output of the step's model and the tensor that it becomes.
    """

    step: int
    reads: tuple[tuple[str, str], ...]
    optional: frozenset[str]
    writes: tuple[tuple[str, str], ...]
    path: Path
    is_decoupled: bool = False


@dataclass(frozen=True, slots=True)
class StepModel:
    """What matters here of the model of a step."""

    is_decoupled: bool = False
    optional: frozenset[str] = frozenset()


class Graph:
    """See the module. Raises ValueError when a step would have to join the responses of two decoupled models."""

    __slots__ = ("_paths", "readers", "steps")

    def __init__(self, steps: Sequence[StepPlan], models: Sequence[StepModel], inputs: Iterable[str]) -> None:
        self._paths: dict[str, Path] = dict.fromkeys(inputs, ())
        made: dict[int, Consumer] = {}
        while len(made) < len(steps):
            for index, (step, model) in enumerate(zip(steps, models)):
                if index not in made and all(tensor in self._paths for _, tensor in step.inputs):
                    made[index] = self._step(index, step, model)
                    break
            else:
                raise ValueError("the steps wait for each other")
        self.steps = tuple(made[index] for index in range(len(steps)))
        readers: defaultdict[str, list[Consumer]] = defaultdict(list)
        for consumer in self.steps:
            for tensor in {tensor for _, tensor in consumer.reads}:
                readers[tensor].append(consumer)
        self.readers = dict(readers)

    def path(self, tensor: str) -> Path:
        """Return the path of a tensor."""
        return self._paths[tensor]

    def answer(self, outputs: Collection[str]) -> Consumer:
        """Return what waits for the tensors that a client wants."""
        reads = tuple((name, name) for name in outputs)
        return Consumer(-1, reads, frozenset(), (), self._joined(outputs))

    def _step(self, index: int, step: StepPlan, model: StepModel) -> Consumer:
        path = self._joined(tensor for _, tensor in step.inputs)
        after = (*path, index) if model.is_decoupled else path
        writes = tuple(step.outputs.items())
        self._paths.update((tensor, after) for _, tensor in writes)
        return Consumer(index, step.inputs, model.optional, writes, path, model.is_decoupled)

    def _joined(self, tensors: Iterable[str]) -> Path:
        """Return the path that all these tensors lie on: where there is one, the others are its beginnings."""
        longest: Path = ()
        for tensor in tensors:
            path = self._paths[tensor]
            if path[: len(longest)] != longest[: len(path)]:
                raise ValueError(f"tensor '{tensor}' and another come from different decoupled models")
            longest = max(longest, path, key=len)
        return longest
