"""Batching without numbers on simulated time: what it promises, and that no fixed numbers would have been much better.

The measure: for a model (a table of measured run times), a number of instances and the largest batch of 8, each setting runs
the same traces (constant, at random, bursts of 8 at 0.2 ms) at 30, 60 and 90 % of what the instances can do at most. Latencies
count after the first third, in which costs are learnt. A setting stands for what a user would write for the model, so it is
compared over all of these traces: by the geometric mean of the ratios of mean latencies, and of the 99th percentiles. Besides,
no single trace at no load may be worse than with a delay of 0, the default.
"""

from __future__ import annotations

import logging
from statistics import geometric_mean, mean

import pytest
from batching_plans import make_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.batching import adaptive, fixed
from simulator.costs import FLAT, MAGIKA, RECORDED, SILERO_VAD, SMALL_MLP, WIDE_MLP, CostTable
from simulator.promises import MS, arrivals, check_promises, plans
from simulator.running import MakeScheduler, Record, simulate
from simulator.traces import Arrival, bursts, constant, on_off, poisson

from naiad.config.plan import DynamicBatchingPlan
from naiad.schedulers.dynamic.adaptive.policy import RUNS_BEFORE

COSTS = (*RECORDED, FLAT)
START_NS = 1_000_000_000
TRACES = {"constant": constant, "poisson": poisson, "bursts": bursts}
SETTINGS = ((None, 0), (None, 1_000), (None, 5_000), (None, 10_000), ((4,), 0), ((4,), 5_000))


def without_delay(plan: DynamicBatchingPlan) -> bool:
    return plan.max_queue_delay_us == 0 and plan.preferred_batch_sizes == (plan.max_batch_size,)


@given(arrivals(), plans().filter(without_delay), st.sampled_from(COSTS), st.integers(1, 3), st.sampled_from([0, 5, 100]))
@settings(deadline=None)
def test_each_request_ends_once_in_order_and_within_the_limits(
    trace: list[Arrival], plan: DynamicBatchingPlan, costs: CostTable, instance_count: int, target_ms: float
) -> None:
    check_promises(simulate(adaptive(plan, target_ms), trace, costs, instance_count), plan)


@given(arrivals(), st.sampled_from(COSTS), st.integers(1, 3))
@settings(deadline=None)
def test_it_begins_as_without_a_delay(trace: list[Arrival], costs: CostTable, instance_count: int) -> None:
    plan = make_plan(8)
    learning, plain = (simulate(make(plan), trace, costs, instance_count) for make in (adaptive, fixed))
    ended_ns = sorted(run.ended_ns for run in plain.runs)
    learnt_ns = ended_ns[RUNS_BEFORE - 1] if len(ended_ns) >= RUNS_BEFORE else max(ended_ns) + 1
    first, expected = ([run for run in record.runs if run.started_ns < learnt_ns] for record in (learning, plain))
    assert expected == first


@given(st.sampled_from(["poisson", "bursts"]), st.integers(1, 1000), st.sampled_from([0.2, 0.6]), st.integers(1, 3))
@settings(deadline=None, max_examples=25)
def test_nobody_waits_beside_an_idle_instance_for_longer_than_a_run_takes(
    name: str, seed: int, load: float, instance_count: int
) -> None:
    """Checked where costs don't vary: the longest run is 10 ms, and what waits for no instance waits no longer."""
    rate = load * FLAT.capacity_per_s(8, instance_count)
    trace = TRACES[name](rate, 150, seed=seed)
    record = simulate(adaptive(make_plan(8)), trace, FLAT, instance_count)
    for run in record.runs:
        arrived_ns = START_NS + trace[run.indices[0]].at_ns
        others = [other for other in record.runs if other.ended_ns >= arrived_ns and other.started_ns < run.started_ns]
        if len(others) < instance_count:
            assert run.started_ns - arrived_ns <= 10 * MS


def test_what_comes_in_bursts_is_waited_for() -> None:
    """With a run of 10 ms whatever is in it, bursts of 4 at 1 ms run whole once that is learnt, not as 1 and 3."""
    trace = [Arrival((100 * burst + index) * MS) for burst in range(60) for index in range(4)]
    assert simulate(adaptive(make_plan(4)), trace, FLAT).sizes[-10:] == [4] * 10


def test_nothing_is_waited_for_when_no_more_comes() -> None:
    """Four requests always come at once and nothing after them: once sizes are measured, none waits."""
    trace = [Arrival(100 * burst * MS) for burst in range(60) for _ in range(4)]
    record = simulate(adaptive(make_plan(8)), trace, FLAT)
    assert {10 * MS} == {record.latencies_ns[index] for index in range(len(trace) - 120, len(trace))}


def test_batches_that_only_make_everyone_later_are_divided() -> None:
    """A model that takes 8.5 ms an item alone and 24 ms an item in batches of 32 runs them in small ones once that is known."""
    trace = [Arrival(burst * 400 * MS) for burst in range(60) for _ in range(32)]
    record = simulate(adaptive(make_plan(32)), [Arrival(0), *(Arrival(a.at_ns + 40 * MS) for a in trace)], MAGIKA)
    assert max(record.sizes[-60:]) <= 8


def test_the_log_tells_what_was_measured_and_how_long_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "naiad.schedulers.dynamic.adaptive.policy")
    simulate(adaptive(make_plan(8)), bursts(100, 1_500, burst=5), WIDE_MLP)
    costs, waits = caplog.records[-1].args[1:]
    assert all(abs(WIDE_MLP.run_ns(round(size)) / MS - ms) < 0.5 for size, ms in costs)
    assert (waits[4], waits[5]) == (1.0, 0.0), "a burst of 5 is waited for, and not for more once it is there"


def ratios(costs: CostTable, instance_count: int, max_batch_size: int, count: int) -> dict[tuple[object, int], list[Ratio]]:
    """Return for each setting how the adaptive batcher compares with it, for each trace and load."""
    found: dict[tuple[object, int], list[Ratio]] = {setting: [] for setting in SETTINGS}
    for load in (0.3, 0.6, 0.9):
        for make_trace in TRACES.values():
            trace = make_trace(load * costs.capacity_per_s(max_batch_size, instance_count), count)
            own = measured(adaptive(make_plan(max_batch_size)), trace, costs, instance_count)
            for preferred, delay_us in SETTINGS:
                make = fixed(make_plan(max_batch_size, preferred, delay_us))
                other = measured(make, trace, costs, instance_count)
                found[preferred, delay_us].append((own[0] / other[0], own[1] / other[1]))
    return found


Ratio = tuple[float, float]
"""Our mean latency to another's, and our 99th percentile to its."""


def measured(make: MakeScheduler, trace: list[Arrival], costs: CostTable, instance_count: int) -> tuple[float, float]:
    """Return mean and 99th percentile of the latencies after the first third."""
    record = simulate(make, trace, costs, instance_count)
    latencies = sorted(record.latencies_ns[index] for index in range(len(trace) // 3, len(trace)))
    return mean(latencies), latencies[int(len(latencies) * 0.99)]


def check_never_much_worse(found: dict[tuple[object, int], list[Ratio]], mean_limit: float, p99_limit: float) -> None:
    for setting, of_setting in found.items():
        assert geometric_mean([ratio for ratio, _ in of_setting]) <= mean_limit, setting
        assert geometric_mean([ratio for _, ratio in of_setting]) <= p99_limit, setting
    assert max(ratio for ratio, _ in found[None, 0]) <= 1.05


@pytest.mark.parametrize(
    ("costs", "instance_count"),
    [(WIDE_MLP, 1), (WIDE_MLP, 2), (MAGIKA, 1), (MAGIKA, 2), (SMALL_MLP, 1), (SILERO_VAD, 1)],
    ids=lambda value: value.name.replace(" ", "_") if isinstance(value, CostTable) else str(value),
)
def test_no_fixed_setting_is_better_by_more_than_a_twentieth(costs: CostTable, instance_count: int) -> None:
    """See the measure above: 5 % for means as for 99th percentiles."""
    check_never_much_worse(ratios(costs, instance_count, 8, 900), 1.05, 1.05)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("costs", [WIDE_MLP, MAGIKA])
@pytest.mark.parametrize("instance_count", [1, 2, 4])
def test_nor_with_more_instances_and_longer(costs: CostTable, instance_count: int) -> None:
    check_never_much_worse(ratios(costs, instance_count, 8, 6_000), 1.05, 1.05)


def machine_ms(record: Record) -> float:
    return sum(run.ended_ns - run.started_ns for run in record.runs) / MS


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_a_target_saves_time_of_the_instances_and_is_kept(load: float) -> None:
    """With room to the target the same requests take less of the instance, and 99 of 100 are still answered in it."""
    trace = poisson(load * WIDE_MLP.capacity_per_s(8), 1_500)
    eager = simulate(adaptive(make_plan(8)), trace, WIDE_MLP)
    patient = simulate(adaptive(make_plan(8), target_ms=40), trace, WIDE_MLP)
    assert machine_ms(patient) < 0.9 * machine_ms(eager)
    assert patient.p99_ms() <= 40


@pytest.mark.parametrize("costs", [WIDE_MLP, MAGIKA])
@pytest.mark.parametrize("name", [*TRACES, "on_off"])
def test_near_capacity_a_target_loses_no_answer_in_time(costs: CostTable, name: str) -> None:
    """Goodput, the answers within the target of 60 ms, at 90 % of the capacity: at least 95 % of any fixed setting's."""
    make_trace = {**TRACES, "on_off": on_off}[name]
    trace = make_trace(0.9 * costs.capacity_per_s(8), 1_500)
    own = simulate(adaptive(make_plan(8), target_ms=60), trace, costs).within(60)
    for preferred, delay_us in SETTINGS:
        other = simulate(fixed(make_plan(8, preferred, delay_us)), trace, costs).within(60)
        assert own >= 0.95 * other, (preferred, delay_us)
