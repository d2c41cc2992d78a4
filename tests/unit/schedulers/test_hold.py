"""Triton's variables for tests of batching: a scheduler starts, once, when so much is queued."""

from __future__ import annotations

import numpy as np
import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock
from sequence_plans import sequence_plan

from naiad.errors import InferenceServerError
from naiad.request.request import Sequence
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.hold import Hold, read_hold
from naiad.schedulers.sequence.scheduler import SequenceScheduler

SECOND = 1_000_000_000


def test_the_environment_says_how_much() -> None:
    environment = {"TRITONSERVER_DELAY_SCHEDULER": "12", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "3"}
    assert read_hold(environment) == Hold(12, 3)
    assert read_hold({"TRITONSERVER_DELAY_SCHEDULER": ""}).is_over


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "²"])
def test_a_value_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InferenceServerError, match=f"TRITONSERVER_DELAY_SCHEDULER is '{text}', must be a whole number >= 0"):
        read_hold({"TRITONSERVER_DELAY_SCHEDULER": text})


def test_the_dynamic_batcher_starts_when_enough_is_queued_and_then_as_ever() -> None:
    clock, instance = ManualClock(), FakeInstance()
    scheduler = DynamicScheduler([instance], clock, make_plan(max_batch_size=4, preferred=(4,)), Hold(6))
    for _ in range(5):
        scheduler.enqueue(Probe().request)
    clock.advance(SECOND)
    assert instance.batches == []
    scheduler.enqueue(Probe().request)
    clock.settle()
    instance.finish()
    clock.settle()
    instance.finish()
    scheduler.enqueue(Probe().request)
    clock.settle()
    assert instance.sizes == [4, 2, 1]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
def test_the_sequence_batcher_counts_what_is_in_slots_and_in_the_backlog(strategy: str) -> None:
    clock, instance = ManualClock(), FakeInstance()
    scheduler = SequenceScheduler(clock, sequence_plan(strategy, max_batch_size=2), lambda count: None, Hold(3, 1))
    scheduler.add(instance)

    def send(sequence_id: int, *, is_start: bool = True) -> None:
        probe = Probe({"X": np.zeros((1, 1), np.float32)})
        probe.request.sequence = Sequence(sequence_id, is_start, is_end=False)
        scheduler.enqueue(probe.request)
        clock.settle()

    send(1)
    send(1, is_start=False)
    send(2)
    assert instance.batches == []
    send(3)
    assert instance.sizes == [2]
