"""Random traffic and settings of the dynamic batcher, and what holds for every run of it, whatever it decides by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from batching_plans import make_plan
from hypothesis import strategies as st

from naiad.config.plan import DynamicBatchingPlan, QueuePolicy
from naiad.errors import Code
from simulator.running import Record
from simulator.traces import Arrival

MS = 1_000_000
POLICIES = st.builds(
    QueuePolicy,
    timeout_us=st.sampled_from([0, 5_000, 30_000]),
    is_delay=st.booleans(),
    allow_timeout_override=st.booleans(),
    max_size=st.sampled_from([0, 0, 3, 20]),
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Up to 60 requests with gaps from none to 20 ms, of several sizes, priorities, time-outs and shapes."""
    now, made = 0, []
    for _ in range(draw(st.integers(1, 60))):
        now += draw(st.sampled_from([0, 0, 50_000, 900_000, 5 * MS, 20 * MS]))
        made.append(
            Arrival(
                now,
                size=draw(st.integers(1, 4)),
                priority=draw(st.integers(0, 3)),
                timeout_us=draw(st.sampled_from([0, 2_000, 10_000])),
                key=draw(st.integers(1, 2)),
            )
        )
    return made


@st.composite
def plans(draw: st.DrawFn) -> DynamicBatchingPlan:
    """Settings that a configuration may have; preserve_ordering only where the checks allow it."""
    levels, policy = draw(st.sampled_from([0, 0, 3])), draw(POLICIES)
    keeps_order = levels == 0 and not (policy.timeout_us and policy.is_delay) and draw(st.booleans())
    return make_plan(
        draw(st.sampled_from([4, 8])),
        draw(st.sampled_from([None, (4,), (2, 4)])),
        draw(st.sampled_from([0, 0, 1_000, 10_000])),
        policy,
        levels=levels,
        preserve_ordering=keeps_order,
        variable_inputs=draw(st.sampled_from([(), ("X",)])),
    )


def check_promises(record: Record, plan: DynamicBatchingPlan) -> None:
    """Check what holds for every run of the batcher, whatever it decides by."""
    trace = record.arrivals
    assert dict.fromkeys(range(len(trace)), 1) == dict(record.end_counts)
    assert all(error.code is Code.UNAVAILABLE for error in record.errors.values())
    ran = [index for run in record.runs for index in run.indices]
    assert sorted(ran) == sorted(record.latencies_ns)
    for run in record.runs:
        assert run.size == sum(trace[index].size for index in run.indices) <= plan.max_batch_size
        assert not plan.variable_inputs or len({trace[index].key for index in run.indices}) == 1
    if plan.preserve_ordering:
        answered = [index for index in record.answered if index not in record.errors]
        assert sorted(answered) == answered
    if not plan.default_policy.timeout_us:
        check_order(ran, trace)


def check_order(ran: list[int], trace: Sequence[Arrival]) -> None:
    """Check that what has the same priority started in the order of its arrival."""
    levels = defaultdict(list)
    for index in ran:
        levels[trace[index].priority].append(index)
    assert all(sorted(level) == level for level in levels.values())
