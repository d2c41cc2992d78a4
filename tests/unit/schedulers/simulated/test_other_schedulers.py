"""What the default scheduler and the sequence batcher promise, over random traffic and costs, on simulated time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from fake_execution import FakeInstance
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock
from sequence_plans import CONTROLS, sequence_plan
from simulator.costs import FLAT, RECORDED, SILERO_VAD, CostTable
from simulator.running import simulate
from simulator.traces import Arrival

from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.sequence.scheduler import SequenceScheduler

MS = 1_000_000
GAPS = st.sampled_from([0, 0, 50_000, 900_000, 5 * MS])
STRATEGIES = {"direct": f"direct {{ }} {CONTROLS}", "oldest": f"oldest {{ max_candidate_sequences: 3 }} {CONTROLS}"}


def direct(instances: Sequence[FakeInstance], clock: ManualClock) -> DirectScheduler:
    return DirectScheduler(instances, clock)


@given(st.lists(GAPS, max_size=60), st.sampled_from([*RECORDED, FLAT]), st.integers(1, 3))
@settings(deadline=None)
def test_the_default_scheduler_runs_each_request_alone_in_order_on_whatever_is_free(
    gaps: list[int], costs: CostTable, instance_count: int
) -> None:
    trace = [Arrival(sum(gaps[: index + 1])) for index in range(len(gaps))]
    record = simulate(direct, trace, costs, instance_count)
    assert [(index,) for index in range(len(trace))] == [run.indices for run in record.runs]
    assert len(trace) == len(record.latencies_ns)
    assert record.idle_while_queued == []


@st.composite
def sequences(draw: st.DrawFn) -> list[Arrival]:
    """Up to 8 sequences of 1 to 6 requests, mixed at random, each in its order."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    order = draw(st.permutations([number for number, length in enumerate(lengths, 1) for _ in range(length)]))
    seen: dict[int, int] = defaultdict(int)
    now, made = 0, []
    for number in order:
        now += draw(GAPS)
        seen[number] += 1
        is_end = seen[number] == lengths[number - 1]
        made.append(Arrival(now, sequence=number, is_start=seen[number] == 1, is_end=is_end))
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(sequences(), st.integers(1, 2))
@settings(deadline=None)
def test_each_request_of_a_sequence_is_answered_once_in_order_by_one_instance(
    strategy: str, trace: list[Arrival], instance_count: int
) -> None:
    plan = sequence_plan(STRATEGIES[strategy])

    def make(instances: Sequence[FakeInstance], clock: ManualClock) -> SequenceScheduler:
        scheduler = SequenceScheduler(clock, plan, lambda count: None)
        for instance in instances:
            scheduler.add(instance)
        return scheduler

    record = simulate(make, trace, SILERO_VAD, instance_count)
    assert (dict.fromkeys(range(len(trace)), 1), {}) == (dict(record.end_counts), record.errors)
    ran = defaultdict(list)
    for run in record.runs:
        assert run.size <= 4
        for index in run.indices:
            ran[trace[index].sequence].append((index, run.instance))
    for of_sequence in ran.values():
        assert sorted(of_sequence) == of_sequence
        assert len({instance for _, instance in of_sequence}) == 1
