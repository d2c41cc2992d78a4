"""When a sequence starts, steps and ends, as pure functions of how many requests went out. Owns that plan and its answers.

Sequences take turns: of COUNT, request `n` belongs to sequence `n % COUNT`, in pass `n // COUNT`. In the first pass all start;
from then on each ends after so many steps and starts again at its next turn, a few of them in each pass. So nearly all of them
are always open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.http_infer import Array, Form, InferRequest, make_request

COUNT = 1000
PROBES = 8


@dataclass(frozen=True, slots=True)
class Step:
    """What one turn of a sequence says of it."""

    is_start: bool
    is_end: bool


@dataclass(frozen=True, slots=True)
class Lives:
    """The plan for `count` sequences, each with `steps` from start to end, both counted. Sequences and passes count from 0."""

    count: int = COUNT
    steps: int = 20

    def step(self, sequence: int, turn: int) -> Step:
        """Return what `sequence` sends in pass `turn`."""
        phase = (sequence + turn) % self.steps
        return Step(turn == 0 or phase == 0, phase == self.steps - 1)

    def sum_after(self, sequence: int, turn: int) -> int:
        """Return the sum that the step of pass `turn` answers."""
        phase = (sequence + turn) % self.steps
        return value_of(sequence) * (min(turn, phase) + 1)

    def probes(self, sent: int) -> dict[int, int]:
        """Return up to PROBES sequences that are open after `sent` requests, at least one pass, with their sums.

        Their last steps went out half a pass before the last request, so long ago that they are answered.
        """
        found: dict[int, int] = {}
        for number in range(sent - 1 - self.count // 2, max(sent - 1 - self.count, -1), -1):
            turn, sequence = divmod(number, self.count)
            if not self.step(sequence, turn).is_end and len(found) < PROBES:
                found[sequence] = self.sum_after(sequence, turn)
        return found


def value_of(sequence: int) -> int:
    """Return what each step of `sequence` adds: neighbours differ, so that sums mixed up are seen."""
    return 1 + sequence % 7


def make_step(model: str, sequence: int, step: Step, value: int | None = None) -> InferRequest:
    """Return the request in binary form that adds `value`, or else the sequence's own."""
    parameters: Mapping[str, int | bool] = {
        "sequence_id": sequence + 1,  # 0 is no sequence
        "sequence_start": step.is_start,
        "sequence_end": step.is_end,
    }
    given = np.array([[value_of(sequence) if value is None else value]], np.int32)
    return make_request(model, {"INPUT0": given}, Form.BINARY, parameters)


def expected(total: int) -> dict[str, Array]:
    """Return the answer that says this sum."""
    return {"OUTPUT0": np.array([[total]], np.int32)}
