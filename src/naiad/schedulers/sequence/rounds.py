"""Which requests of the sequences on an instance run together under the direct strategy: a pure function.

Owns the decision. Doesn't own time, slots or instances; it is asked while the instance is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from naiad.config.plan import SequencePlan
from naiad.request.request import InferRequest

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RoundRules:
    """`delay_ns` and `least_ready` are 0 when a round never waits; `least_ready` is how many requests wait for no others."""

    delay_ns: int
    least_ready: float
    equal_inputs: tuple[str, ...]

    @classmethod
    def of(cls, plan: SequencePlan) -> RoundRules:
        """Compile the rules: a round waits only when both settings are given."""
        waits = plan.max_queue_delay_us > 0 and plan.minimum_slot_utilization > 0
        return cls(
            delay_ns=plan.max_queue_delay_us * 1000 if waits else 0,
            least_ready=plan.minimum_slot_utilization * plan.slots if waits else 0,
            equal_inputs=plan.variable_inputs,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """The requests to run now, by position: one of None is a slot to fill up."""

    requests: tuple[InferRequest | None, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at `until_ns`, or when there is another request."""

    until_ns: int


def next_round(
    heads: Sequence[InferRequest | None],
    rules: RoundRules,
    now_ns: int,
    states: Callable[[int], Mapping[str, Array]] = lambda _slot: {},
) -> Round | Wait | None:
    """Decide what an idle instance should run; `heads` has the first waiting request of each slot, None where there is none;
    `states` gives the state tensors that go in with a slot's request.

    Each request runs at the position of its slot, up to the last one that runs. Requests whose variable inputs have other
    shapes than the first one's sit this round out. None when nothing waits.
    """
    ready = [request for request in heads if request is not None]
    if not ready:
        return None
    oldest_ns = min(request.enqueued_ns for request in ready)
    if len(ready) < rules.least_ready and now_ns - oldest_ns < rules.delay_ns:
        return Wait(oldest_ns + rules.delay_ns)
    chosen = list(heads)
    if rules.equal_inputs:
        shapes = [
            None if request is None else _shapes(request.inputs, states(slot), rules) for slot, request in enumerate(heads)
        ]
        wanted = next(known for known in shapes if known is not None)
        chosen = [request if known == wanted else None for request, known in zip(heads, shapes)]
    while chosen[-1] is None:
        chosen.pop()
    return Round(tuple(chosen))


def _shapes(inputs: Mapping[str, Array], states: Mapping[str, Array], rules: RoundRules) -> list[tuple[int, ...] | None]:
    found = [inputs.get(name, states.get(name)) for name in rules.equal_inputs]
    return [None if array is None else array.shape for array in found]
