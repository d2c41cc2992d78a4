"""The steps of an ensemble as a graph: who reads which tensor, and which tensors come once and which any number of times.

Owns what is the same for all requests as long as the models of the steps stay. What one request does is in `flow`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from naiad.config.plan import StepPlan

_MOST_WIRINGS = 64

Path = tuple[int, ...]
"""The decoupled steps that a tensor has come through, in order. A tensor with an empty path comes once; one with `(2,)` once
for each response of step 2, `(2, 5)` once for each response of step 5 to one of those.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Consumer:
    """What waits for tensors: a step, or with `step` -1 the answer to the client.

    `reads` are pairs of a name and the tensor for it, `tensors` those tensors; `optional` the names that may stay without.
    It is due once for each iteration of `path`. `writes` are pairs of an output of the step's model and the tensor for it.
    """

    step: int
    reads: tuple[tuple[str, str], ...]
    optional: frozenset[str]
    writes: tuple[tuple[str, str], ...]
    path: Path
    is_decoupled: bool = False
    tensors: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", frozenset(tensor for _, tensor in self.reads))


@dataclass(frozen=True, slots=True)
class StepModel:
    """What matters here of the model of a step."""

    is_decoupled: bool = False
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """What a flow needs to know, the same for all requests that want the same outputs.

    `readers` are who reads a tensor, the answer with them; `begun` who is due in the iterations of a path. `local` says how
    many read a tensor that is read in its own iterations only. `keeping` are the paths after whose iterations others may come;
    `paths` those of the tensors.
    """

    answer: Consumer
    readers: Mapping[str, tuple[Consumer, ...]]
    begun: Mapping[Path, tuple[Consumer, ...]]
    local: Mapping[str, int]
    keeping: frozenset[Path]
    paths: Mapping[str, Path]


class Graph:
    """See the module. Raises ValueError when a step would have to join the responses of two decoupled models."""

    __slots__ = ("_paths", "_wirings", "steps")

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
        self._wirings: dict[tuple[str, ...], Wiring] = {}

    def wiring(self, outputs: Collection[str]) -> Wiring:
        """Return how everything hangs together for a client that wants these outputs."""
        wanted = tuple(outputs)
        known = self._wirings.get(wanted)
        if known is None:
            if len(self._wirings) >= _MOST_WIRINGS:
                self._wirings.clear()
            known = self._wirings[wanted] = self._wire(wanted)
        return known

    def _wire(self, outputs: tuple[str, ...]) -> Wiring:
        answer = Consumer(-1, tuple((name, name) for name in outputs), frozenset(), (), self._joined(outputs))
        readers: defaultdict[str, list[Consumer]] = defaultdict(list)
        begun: defaultdict[Path, list[Consumer]] = defaultdict(list)
        for consumer in (*self.steps, answer):
            begun[consumer.path].append(consumer)
            for tensor in consumer.tensors:
                readers[tensor].append(consumer)
        return Wiring(
            answer=answer,
            readers={tensor: tuple(found) for tensor, found in readers.items()},
            begun={path: tuple(found) for path, found in begun.items()},
            local={
                tensor: len(found)
                for tensor, found in readers.items()
                if all(consumer.path == self._paths[tensor] for consumer in found)
            },
            keeping=frozenset(path[:length] for path in begun for length in range(len(path))),
            paths=self._paths,
        )

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
