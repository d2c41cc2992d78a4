"""What the dynamic batcher promises, over random traffic, settings and costs, on simulated time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from batching_plans import make_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.batching import fixed
from simulator.costs import FLAT, MAGIKA, RECORDED, CostTable
from simulator.promises import MS, arrivals, check_promises, plans
from simulator.running import simulate
from simulator.traces import Arrival, bursts, constant, on_off, poisson

from naiad.config.plan import DynamicBatchingPlan, QueuePolicy

COSTS = (*RECORDED, FLAT)


@given(arrivals(), plans(), st.sampled_from(COSTS), st.integers(1, 3))
@settings(deadline=None)
def test_each_request_ends_once_in_order_and_within_the_limits(
    trace: list[Arrival], plan: DynamicBatchingPlan, costs: CostTable, instance_count: int
) -> None:
    check_promises(simulate(fixed(plan), trace, costs, instance_count), plan)


@given(arrivals(), plans(), st.sampled_from(COSTS), st.integers(1, 3))
@settings(deadline=None)
def test_no_instance_is_idle_while_something_may_run(
    trace: list[Arrival], plan: DynamicBatchingPlan, costs: CostTable, instance_count: int
) -> None:
    record = simulate(fixed(plan), trace, costs, instance_count)
    if plan.max_queue_delay_us == 0:
        assert record.idle_while_queued == []


@given(arrivals(), st.sampled_from(COSTS), st.integers(1, 3), st.sampled_from([1_000, 10_000]))
@settings(deadline=None)
def test_a_delay_keeps_nobody_longer_than_it_says_beyond_the_wait_for_an_instance(
    trace: list[Arrival], costs: CostTable, instance_count: int, delay_us: int
) -> None:
    """With a delay, from the moment at which all are as old as the delay some instance has a batch until none is queued."""
    plan = make_plan(8, delay_us=delay_us)
    record = simulate(fixed(plan), trace, costs, instance_count)
    start = 1_000_000_000
    for run in record.runs:
        due = max(start + trace[run.indices[0]].at_ns + delay_us * 1000, start)
        busy = [other for other in record.runs if other.started_ns <= due < other.ended_ns]
        assert run.started_ns <= due or len(busy) == instance_count


@given(arrivals(), st.integers(1, 2))
@settings(deadline=None)
def test_late_requests_that_are_to_be_delayed_all_end_well(trace: list[Arrival], instance_count: int) -> None:
    plan = make_plan(4, default_policy=QueuePolicy(timeout_us=1_000, is_delay=True))
    record = simulate(fixed(plan), trace, MAGIKA, instance_count)
    assert (len(trace), {}) == (len(record.latencies_ns), record.errors)


def together(count: int, at_ns: int = 0) -> list[Arrival]:
    return [Arrival(at_ns)] * count


@pytest.mark.parametrize(("preferred", "expected"), [((4,), [1, 4, 4, 1]), (None, [1, 8, 1])])
def test_batches_form_while_the_instance_is_busy(preferred: tuple[int, ...] | None, expected: list[int]) -> None:
    record = simulate(fixed(make_plan(8, preferred)), together(1) + together(9, MS), FLAT)
    assert expected == record.sizes


def test_what_fills_no_preferred_size_runs_after_the_delay() -> None:
    record = simulate(fixed(make_plan(8, (4,), 100_000)), together(3), FLAT)
    assert (record.sizes, [record.latencies_ns[index] for index in range(3)]) == ([3], [110 * MS] * 3)


def long_run(seed: int, count: int) -> tuple[list[Arrival], DynamicBatchingPlan, dict[str, Any]]:
    """Return a long trace near the capacity of a random model, with random settings."""
    random = Random(seed)
    costs, instance_count, size = random.choice(COSTS), random.randint(1, 4), random.choice([4, 8, 32])
    rate = random.choice([0.5, 0.95, 1.5]) * costs.capacity_per_s(size, instance_count)
    kind = random.choice(["constant", "poisson", "bursts", "on_off"])
    trace = {
        "constant": lambda: constant(rate, count),
        "poisson": lambda: poisson(rate, count, seed),
        "bursts": lambda: bursts(rate, count, seed=seed),
        "on_off": lambda: on_off(rate, count, seed=seed),
    }[kind]()
    policy = QueuePolicy(timeout_us=random.choice([0, 50_000]), max_size=random.choice([0, 100]))
    plan = make_plan(size, None, random.choice([0, 2_000]), policy)
    return trace, plan, {"costs": costs, "instance_count": instance_count}


@pytest.mark.parametrize("seed", range(4))
def test_a_long_run_keeps_the_promises(seed: int) -> None:
    trace, plan, others = long_run(seed, 1_500)
    check_promises(simulate(fixed(plan), trace, **others), plan)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_very_long_run_keeps_the_promises(seed: int) -> None:
    trace, plan, others = long_run(seed, 50_000)
    check_promises(simulate(fixed(plan), trace, **others), plan)
