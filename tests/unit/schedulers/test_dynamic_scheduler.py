"""What the dynamic batcher does and when, on a clock that a test moves: batches, delays, deadlines, limits, order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, InPlaceInstance, Probe
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from naiad.config.plan import QueuePolicy
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.request.batch import CloseReason
from naiad.schedulers.dynamic.scheduler import DynamicScheduler

MS = 1_000_000


class Setup:
    """A scheduler with its clock and instances; `send` makes and enqueues requests."""

    def __init__(self, instances: int | list[FakeInstance] = 1, **plan: Any) -> None:
        self.clock = ManualClock()
        self.instances = [FakeInstance(f"fake_{i}") for i in range(instances)] if isinstance(instances, int) else instances
        self.instance = self.instances[0]
        self.scheduler = DynamicScheduler(self.instances, self.clock, make_plan(**plan))

    def send(self, count: int = 1, priority: int = 0, timeout_us: int = 0, request_id: str = "", **probe: Any) -> list[Probe]:
        probes = [Probe(**probe) for _ in range(count)]
        for sent in probes:
            sent.request.priority, sent.request.timeout_us, sent.request.id = priority, timeout_us, request_id
            self.scheduler.enqueue(sent.request)
        return probes

    def finish_all(self) -> None:
        self.clock.settle()
        while any(instance.is_busy for instance in self.instances):
            for instance in self.instances:
                if instance.is_busy:
                    instance.finish()
            self.clock.settle()


def closed(setup: Setup) -> dict[CloseReason, int]:
    """Return how many batches were closed for which reasons, without those that never came."""
    return {reason: count for reason, count in setup.scheduler.close_counts.items() if count}


@pytest.mark.parametrize(("preferred", "expected"), [((4,), [1, 4, 4, 1]), (None, [1, 8, 1])])
def test_batches_form_by_queueing_while_the_instance_is_busy(preferred: tuple[int, ...] | None, expected: list[int]) -> None:
    setup = Setup(preferred=preferred)
    setup.send()
    setup.clock.settle()
    setup.send(9)
    setup.finish_all()
    assert expected == setup.instance.sizes


def test_what_arrives_in_one_turn_of_the_loop_runs_together() -> None:
    setup = Setup()
    setup.send(5)
    assert setup.instance.batches == []
    setup.clock.run_turn()
    assert setup.instance.sizes == [5]


def test_what_does_not_fill_a_preferred_batch_runs_when_the_delay_is_over_to_the_nanosecond() -> None:
    setup = Setup(preferred=(4,), delay_us=100_000)
    setup.send(3)
    setup.clock.advance(100 * MS - 1)
    assert setup.instance.sizes == []
    setup.clock.advance(1)
    assert setup.instance.sizes == [3]


def test_the_delay_counts_from_the_first_arrival() -> None:
    setup = Setup(preferred=(4,), delay_us=100_000)
    setup.send()
    setup.clock.advance(60 * MS)
    setup.send()
    setup.clock.advance(40 * MS)
    assert setup.instance.sizes == [2]


def test_the_delay_ends_early_when_a_preferred_size_is_reached() -> None:
    setup = Setup(preferred=(4,), delay_us=100_000)
    setup.send(3)
    setup.clock.advance(10 * MS)
    setup.send()
    setup.clock.settle()
    assert setup.instance.sizes == [4]


def test_a_timer_that_fires_early_is_set_again() -> None:
    setup = Setup(preferred=(4,), delay_us=100_000)
    setup.send(3)
    setup.clock.advance(99 * MS)
    setup.clock.ring_early()
    assert setup.instance.sizes == []
    setup.clock.advance(1 * MS)
    assert setup.instance.sizes == [3]


def test_arrivals_that_change_nothing_cost_no_decision() -> None:
    setup = Setup(max_batch_size=1000, delay_us=100_000)
    setup.send()
    setup.clock.settle()
    turns = setup.clock.turns_run
    setup.send(998)
    assert (setup.clock.soon_count(), setup.clock.turns_run) == (0, turns)
    setup.send()
    setup.clock.settle()
    assert setup.instance.sizes == [1000]


def test_batches_are_counted_by_why_they_were_no_larger() -> None:
    three, four = ({"X": np.zeros((1, length), np.float32)} for length in (3, 4))
    setup = Setup(preferred=(4,), variable_inputs=("X",))
    setup.send(3, inputs=three)
    setup.send(6, inputs=four)
    setup.finish_all()
    assert setup.instance.sizes == [3, 4, 2]
    assert closed(setup) == {CloseReason.UNLIKE: 1, CloseReason.PREFERRED: 1, CloseReason.INSTANCE_FREE: 1}
    alike = Setup()
    alike.send(9)
    alike.finish_all()
    assert closed(alike) == {CloseReason.FULL: 1, CloseReason.INSTANCE_FREE: 1}


def test_an_arrival_of_another_shape_ends_the_delay_of_those_before_it() -> None:
    setup = Setup(2, delay_us=100_000, variable_inputs=("X",))
    setup.send(2, inputs={"X": np.zeros((1, 3), np.float32)})
    setup.clock.settle()
    setup.send(inputs={"X": np.zeros((1, 4), np.float32)})
    setup.clock.settle()
    assert (setup.instances[0].sizes, setup.instances[1].sizes) == ([2], [])
    setup.clock.advance(100 * MS)
    assert setup.instances[1].sizes == [1]


def test_a_cancelled_member_of_a_waiting_batch_may_leave_a_preferred_one() -> None:
    setup = Setup(preferred=(2, 8), delay_us=100_000)
    first = setup.send()[0]
    setup.send(batch_size=2)
    setup.clock.settle()
    assert setup.instance.sizes == []
    first.request.cancel()
    setup.clock.settle()
    assert setup.instance.sizes == [2]


def test_an_instance_that_becomes_free_takes_all_that_has_queued_up() -> None:
    setup = Setup(2)
    setup.send(8)
    setup.clock.settle()
    setup.send(8)
    setup.clock.settle()
    setup.send(5)
    setup.instances[1].finish()
    setup.clock.settle()
    assert (setup.instances[0].sizes, setup.instances[1].sizes) == ([8], [8, 5])


def test_a_deadline_passes_on_time_while_every_instance_is_busy() -> None:
    setup = Setup(default_policy=QueuePolicy(timeout_us=300_000))
    setup.send()
    setup.clock.settle()
    late = setup.send(request_id="abc")[0]
    setup.clock.advance(300 * MS - 1)
    assert (late.end_count, setup.scheduler.pending_count()) == (0, 1)
    setup.clock.advance(1)
    assert (late.end_count, setup.scheduler.pending_count()) == (1, 0)
    assert late.error is not None
    assert (late.error.code, late.error.message) == (Code.UNAVAILABLE, "[request id: abc] Request timeout expired")
    assert late.failures == [FailureReason.REJECTED]
    assert late.request.on_cancel is None
    setup.finish_all()
    assert setup.instance.sizes == [1]


def test_an_override_shortens_the_wait_and_never_prolongs_it() -> None:
    setup = Setup(default_policy=QueuePolicy(timeout_us=300_000, allow_timeout_override=True))
    setup.send()
    setup.clock.settle()
    plain, short, long = setup.send(), setup.send(timeout_us=100_000), setup.send(timeout_us=900_000)
    setup.clock.advance(100 * MS)
    assert [probes[0].end_count for probes in (plain, short, long)] == [0, 1, 0]
    setup.clock.advance(200 * MS)
    assert [probes[0].end_count for probes in (plain, short, long)] == [1, 1, 1]


def test_with_delay_nothing_is_refused_and_the_late_run_after_those_in_time() -> None:
    setup = Setup(max_batch_size=1, default_policy=QueuePolicy(timeout_us=300_000, is_delay=True))
    setup.send()
    setup.clock.settle()
    late = setup.send(2)
    setup.clock.advance(300 * MS)
    in_time = setup.send(2)
    setup.finish_all()
    ran = [batch.requests[0] for batch in setup.instance.batches[1:]]
    assert [probe.request for probe in in_time + late] == ran


def test_a_deadline_before_the_end_of_the_delay_refuses_on_time() -> None:
    setup = Setup(preferred=(4,), delay_us=100_000, default_policy=QueuePolicy(timeout_us=50_000))
    probe = setup.send()[0]
    setup.clock.advance(50 * MS)
    assert probe.error is not None
    setup.clock.advance(100 * MS)
    assert setup.instance.sizes == []


def test_exactly_max_queue_size_requests_wait_while_one_runs() -> None:
    setup = Setup(max_batch_size=4, default_policy=QueuePolicy(max_size=2))
    setup.send()
    setup.clock.settle()
    waiting = setup.send(2)
    for _ in range(2):
        refused = Probe()
        with pytest.raises(InferenceServerError, match=r"^\[request id: <id_unknown>\] Exceeds maximum queue size$"):
            setup.scheduler.enqueue(refused.request)
        assert (refused.end_count, refused.request.on_cancel) == (0, None)
    setup.finish_all()
    assert [probe.end_count for probe in waiting] == [1, 1]


def test_requests_for_which_an_instance_is_idle_do_not_fill_the_queue() -> None:
    setup = Setup(2, max_batch_size=1, default_policy=QueuePolicy(max_size=1))
    setup.send(3)
    setup.clock.settle()
    assert (setup.instances[0].sizes, setup.instances[1].sizes, setup.scheduler.pending_count()) == ([1], [1], 1)
    with pytest.raises(InferenceServerError, match="Exceeds maximum queue size"):
        setup.send()


def test_a_queue_that_fills_up_during_a_dispatch_refuses_and_does_not_dispatch_within_it() -> None:
    setup = Setup([InPlaceInstance(), InPlaceInstance()], max_batch_size=1, default_policy=QueuePolicy(max_size=1))
    refusals: list[InferenceServerError] = []

    def send_two() -> None:
        setup.send()
        with pytest.raises(InferenceServerError, match="Exceeds maximum queue size") as caught:
            setup.send()
        refusals.append(caught.value)

    setup.send()[0].on_end = send_two
    setup.clock.run_turn()
    assert (len(refusals), setup.scheduler.pending_count()) == (1, 1)


def test_higher_levels_run_first_and_share_a_batch_with_lower_ones() -> None:
    setup = Setup(max_batch_size=2, levels=2, default_level=2)
    setup.send(2)
    setup.clock.settle()
    low, high = setup.send(3, priority=2), setup.send(1, priority=1)
    setup.finish_all()
    ran = [batch.requests for batch in setup.instance.batches[1:]]
    assert [[high[0].request, low[0].request], [low[1].request, low[2].request]] == ran


def test_one_expired_request_may_cancel_another_that_expires_with_it() -> None:
    setup = Setup(default_policy=QueuePolicy(timeout_us=100))
    setup.send()
    setup.clock.settle()
    first, second = setup.send(2)
    first.on_end = second.request.cancel
    setup.clock.advance(MS)
    assert (first.end_count, second.end_count) == (1, 1)


def test_responses_keep_the_order_of_the_requests_across_instances() -> None:
    setup = Setup(2, max_batch_size=2, preserve_ordering=True)
    probes, heard = setup.send(5), []
    for i, probe in enumerate(probes):
        probe.on_end = lambda i=i: heard.append(i)
    setup.clock.settle()
    probes[4].request.cancel()
    setup.instances[1].fail()
    assert heard == []
    setup.instances[0].finish()
    assert heard == [0, 1, 2, 3, 4]
    assert [probe.error is not None for probe in probes] == [False, False, True, True, True]


def test_a_refused_request_takes_no_place_in_the_order() -> None:
    setup = Setup(max_batch_size=1, preserve_ordering=True, default_policy=QueuePolicy(max_size=1))
    first, second = setup.send(2)
    with pytest.raises(InferenceServerError):
        setup.send()
    setup.finish_all()
    assert (first.end_count, second.end_count) == (1, 1)


def test_requests_sent_by_ends_in_place_leave_the_loop_a_turn_in_between() -> None:
    setup = Setup([InPlaceInstance()])
    follower = Probe()
    setup.send()[0].on_end = lambda: setup.scheduler.enqueue(follower.request)
    setup.clock.run_turn()
    assert (follower.end_count, setup.scheduler.pending_count()) == (0, 1)
    setup.clock.run_turn()
    assert follower.end_count == 1


def test_a_deadline_that_passes_while_a_batch_runs_in_place_is_kept() -> None:
    setup = Setup([InPlaceInstance()], max_batch_size=1, default_policy=QueuePolicy(timeout_us=100))
    first, late = setup.send(2)
    first.on_end = lambda: setup.clock.pass_time(100_000)
    setup.clock.settle()
    assert (first.error, setup.instance.sizes) == (None, [1])
    assert late.error is not None


def test_a_stopped_scheduler_that_is_idle_leaves_no_timer_behind() -> None:
    setup = Setup(default_policy=QueuePolicy(timeout_us=10**9))
    setup.send()
    setup.finish_all()
    assert setup.clock.timer_count() == 1
    setup.scheduler.stop()
    assert setup.clock.timer_count() == 0


def test_100_000_requests_with_deadlines_cost_one_turn_a_batch_and_next_to_no_timers() -> None:
    setup = Setup([InPlaceInstance()], default_policy=QueuePolicy(timeout_us=1_000_000))
    for _ in range(12_500):
        setup.send(8)
        setup.clock.settle()
        setup.clock.advance(10_000)
    assert setup.instance.sizes == [8] * 12_500
    assert setup.clock.turns_run == 12_500
    assert setup.clock.timers_made <= 2


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "send", "turn", "time", "finish", "cancel"]), st.integers(0, 9), st.integers(0, 3)),
    max_size=50,
)
PLANS = st.fixed_dictionaries(
    {
        "preferred": st.sampled_from([None, (2,), (1, 3), (2, 4)]),
        "delay_us": st.sampled_from([0, 5]),
        "levels": st.sampled_from([0, 3]),
        "default_policy": st.builds(
            QueuePolicy,
            st.sampled_from([0, 4, 9]),
            st.booleans(),
            allow_timeout_override=st.booleans(),
            max_size=st.sampled_from([0, 3]),
        ),
    }
)


@given(PLANS, STEPS, st.integers(1, 3))
def test_under_every_plan_requests_end_once_run_once_and_batches_keep_their_limits(
    plan: dict[str, Any], steps: list[tuple[str, int, int]], instances: int
) -> None:
    setup, probes = Setup(instances, max_batch_size=4, **plan), []
    for step, number, level in steps:
        if step == "send":
            probe = Probe(batch_size=1 + number % 4)
            probe.request.priority, probe.request.timeout_us = level, number
            try:
                setup.scheduler.enqueue(probe.request)
            except InferenceServerError as error:
                probe.request.responder.fail(error)
            probes.append(probe)
        elif step == "turn":
            setup.clock.run_turn()
        elif step == "time":
            setup.clock.advance(number * 1000)
        elif step == "finish" and setup.instances[number % instances].is_busy:
            setup.instances[number % instances].finish()
        elif step == "cancel" and number < len(probes):
            probes[number].request.cancel()
    setup.finish_all()
    setup.clock.advance(MS)
    setup.finish_all()
    batches = [batch for instance in setup.instances for batch in instance.batches]
    ran = [request for batch in batches for request in batch.requests]
    assert [1] * len(probes) == [probe.end_count for probe in probes]
    assert all(batch.size <= 4 for batch in batches)
    assert [0 if probe.failures else 1 for probe in probes if probe.failures != [FailureReason.CANCELED]] == [
        ran.count(probe.request) for probe in probes if probe.failures != [FailureReason.CANCELED]
    ]
    assert (setup.scheduler.pending_count(), setup.scheduler.running_count()) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=40))
def test_requests_of_one_level_run_in_the_order_of_their_arrival(arrivals: list[tuple[int, int]]) -> None:
    setup = Setup(max_batch_size=4, levels=3, default_level=3)
    sent = [setup.send(priority=level, batch_size=size)[0].request for level, size in arrivals]
    setup.finish_all()
    ran = [request for batch in setup.instance.batches for request in batch.requests]
    for level in (1, 2, 3):
        expected = [request for request in sent if (request.priority or 3) == level]
        assert expected == [request for request in ran if (request.priority or 3) == level]


def test_a_policy_with_a_fault_does_not_stop_the_queue_for_good() -> None:
    setup = Setup()
    sound, faults = setup.scheduler._policy, [ZeroDivisionError()]

    class Faulty:
        def decide(self, queue: Any, now_ns: int) -> Any:
            if faults:
                raise faults.pop()
            return sound.decide(queue, now_ns)

    setup.scheduler._policy = Faulty()
    setup.send()
    with pytest.raises(ZeroDivisionError):
        setup.clock.settle()
    setup.send()
    setup.finish_all()
    assert setup.instance.sizes == [2]
