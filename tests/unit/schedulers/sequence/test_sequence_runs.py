"""Long random runs of the sequence batcher: nothing is lost or answered twice, and the order of sequences holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_execution import FakeInstance, Probe
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock
from sequence_plans import CONTROLS, sequence_plan

from naiad.errors import Code, InferenceServerError
from naiad.request.request import Sequence
from naiad.schedulers.sequence.scheduler import SequenceScheduler

SLOTS = 2
STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "start", "end", "finish", "fail", "cancel", "wait", "turn"]), st.integers(0, 4)),
    max_size=60,
)


class Run:
    """Drives a scheduler by random steps, and keeps what was accepted, in order."""

    def __init__(self, strategy: str) -> None:
        self.clock = ManualClock()
        plan = sequence_plan(f"{strategy} {CONTROLS}", max_batch_size=SLOTS)
        self.scheduler = SequenceScheduler(self.clock, plan, lambda count: None)
        self.instances = [FakeInstance("a"), FakeInstance("b")]
        for instance in self.instances:
            self.scheduler.add(instance)
        self.accepted: list[Probe] = []
        self.refusals: set[Code] = set()

    def step(self, what: str, number: int) -> None:
        instance = self.instances[number % 2]
        if what in ("send", "start", "end"):
            self._send(number + 1, what)
        elif what in ("finish", "fail") and instance.is_busy:
            instance.finish() if what == "finish" else instance.fail()
        elif what == "cancel" and self.accepted:
            self.accepted[-1 - number % len(self.accepted)].request.cancel()
        elif what == "wait":
            self.clock.advance(300_000_000)
        else:
            self.clock.run_turn()

    def _send(self, sequence_id: int, what: str) -> None:
        probe = Probe({"X": np.full((1, 1), len(self.accepted), np.float32)})
        probe.request.sequence = Sequence(sequence_id, what == "start", what == "end")
        try:
            self.scheduler.enqueue(probe.request)
        except InferenceServerError as error:
            probe.request.responder.refuse()
            self.refusals.add(error.code)
        else:
            self.accepted.append(probe)

    def drain(self) -> None:
        for _ in range(1000):
            self.clock.advance(2_000_000_000)
            busy = [instance for instance in self.instances if instance.is_busy]
            for instance in busy:
                instance.finish()
            if not busy and not self.scheduler.pending_count():
                return
        raise AssertionError("requests wait for ever")

    def order(self, instance: FakeInstance) -> list[tuple[Any, float]]:
        return [
            (request.sequence.id, request.inputs["X"].item())
            for batch in instance.batches
            for request in batch.requests
            if request.sequence is not None
        ]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 3 }"])
@given(steps=STEPS)
def test_every_request_ends_once_and_sequences_keep_their_order(strategy: str, steps: list[tuple[str, int]]) -> None:
    run = Run(strategy)
    for what, number in steps:
        run.step(what, number)
        for batch in [batch for instance in run.instances for batch in instance.batches[-1:]]:
            ids = [request.sequence.id for request in batch.requests if request.sequence is not None]
            assert len(ids) == len(set(ids)) <= SLOTS
    run.drain()
    assert run.refusals <= {Code.INVALID_ARGUMENT}
    assert [probe.end_count for probe in run.accepted] == [1] * len(run.accepted)
    for instance in run.instances:
        ran = run.order(instance)
        for sequence_id in {name for name, _ in ran}:
            values = [value for name, value in ran if name == sequence_id]
            assert values == sorted(values)
    assert (run.scheduler.sequence_count(), run.scheduler.running_count(), run.scheduler.backlog_count()) == (0, 0, 0)
    assert run.clock.timer_count() <= 1
