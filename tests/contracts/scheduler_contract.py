"""What every scheduler must do, whatever it decides. A scheduler's test is a subclass that says how one is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from fake_execution import FakeInstance, InPlaceInstance, Probe
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from naiad.clock import Clock
from naiad.errors import Code, InferenceServerError, unavailable
from naiad.request.batch import Batch, Instance, Scheduler

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["enqueue", "turn", "finish", "fail", "cancel", "remove", "add"]), st.integers(0, 20)),
    max_size=60,
)


class SchedulerContract:
    """Subclass it as `Test…` and implement `make`: FIFO, any number of instances, no deadlines, no delay."""

    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        raise NotImplementedError

    def test_one_request_runs_at_the_end_of_the_turn_and_ends_once(self) -> None:
        clock, instance, probe = ManualClock(), FakeInstance(), Probe()
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probe.request)
        assert (scheduler.pending_count(), scheduler.running_count(), instance.batches) == (1, 0, [])
        clock.run_turn()
        assert (scheduler.pending_count(), scheduler.running_count()) == (0, 1)
        instance.finish()
        assert (scheduler.pending_count(), scheduler.running_count(), probe.end_count) == (0, 0, 1)

    def test_requests_run_in_the_order_of_their_arrival(self) -> None:
        clock, instance, probes = ManualClock(), FakeInstance(), [Probe() for _ in range(20)]
        scheduler = self.make([instance], clock)
        for probe in probes:
            scheduler.enqueue(probe.request)
        _run_all(clock, [instance])
        ran = [request for batch in instance.batches for request in batch.requests]
        assert [probe.request for probe in probes] == ran

    def test_every_idle_instance_gets_work_and_none_gets_two_batches(self) -> None:
        clock, instances = ManualClock(), [FakeInstance(f"fake_{i}") for i in range(3)]
        scheduler = self.make(instances, clock)
        for _ in range(3):
            scheduler.enqueue(Probe().request)
            clock.settle()
        assert [len(instance.batches) for instance in instances] == [1, 1, 1]

    def test_an_instance_whose_batch_failed_is_used_again(self) -> None:
        clock, instance, probes = ManualClock(), FakeInstance(), [Probe(), Probe()]
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probes[0].request)
        clock.settle()
        instance.fail()
        scheduler.enqueue(probes[1].request)
        clock.settle()
        instance.finish()
        assert probes[0].error is not None
        assert (probes[1].error, probes[1].end_count) == (None, 1)

    def test_a_queued_request_that_is_cancelled_ends_at_once_and_never_runs(self) -> None:
        clock, instance = ManualClock(), FakeInstance()
        scheduler, first, second, third = self.make([instance], clock), Probe(), Probe(), Probe()
        scheduler.enqueue(first.request)
        clock.settle()
        scheduler.enqueue(second.request)
        scheduler.enqueue(third.request)
        second.request.cancel()
        assert (scheduler.pending_count(), second.end_count) == (1, 1)
        assert second.error is not None
        assert second.error.code is Code.CANCELLED
        _run_all(clock, [instance])
        assert [first.request, third.request] == [r for batch in instance.batches for r in batch.requests]

    def test_a_request_cancelled_in_the_turn_of_its_arrival_never_runs(self) -> None:
        clock, instance, probe = ManualClock(), FakeInstance(), Probe()
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probe.request)
        probe.request.cancel()
        clock.settle()
        assert (instance.batches, scheduler.pending_count(), scheduler.running_count()) == ([], 0, 0)

    def test_a_running_request_that_is_cancelled_ends_once_and_leaves_its_instance_busy(self) -> None:
        clock, instance, probe = ManualClock(), FakeInstance(), Probe()
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probe.request)
        clock.settle()
        assert probe.request.on_cancel is None
        probe.request.cancel()
        scheduler.enqueue(Probe().request)
        clock.settle()
        assert (len(instance.batches), scheduler.pending_count(), scheduler.running_count()) == (1, 1, 1)
        instance.finish()
        clock.settle()
        assert (probe.end_count, len(instance.batches)) == (1, 2)

    def test_stop_refuses_new_requests_and_runs_the_queued_ones(self) -> None:
        clock, instance, queued, late = ManualClock(), FakeInstance(), [Probe(), Probe()], Probe()
        scheduler = self.make([instance], clock)
        for probe in queued:
            scheduler.enqueue(probe.request)
        scheduler.stop()
        with pytest.raises(
            InferenceServerError, match="Server is stopping, scheduler for model has stopped accepting"
        ) as caught:
            scheduler.enqueue(late.request)
        assert caught.value.code is Code.UNAVAILABLE
        assert (late.end_count, late.request.on_cancel) == (0, None)
        _run_all(clock, [instance])
        assert [probe.end_count for probe in queued] == [1, 1]
        assert [probe.error for probe in queued] == [None, None]

    def test_on_idle_calls_at_once_when_nothing_is_there(self) -> None:
        calls: list[str] = []
        self.make([FakeInstance()], ManualClock()).on_idle(lambda: calls.append("idle"))
        assert calls == ["idle"]

    def test_on_idle_calls_once_when_the_last_request_has_ended(self) -> None:
        clock, instance, calls = ManualClock(), FakeInstance(), []
        scheduler = self.make([instance], clock)
        scheduler.enqueue(Probe().request)
        scheduler.on_idle(lambda: calls.append("idle"))
        clock.settle()
        scheduler.enqueue(Probe().request)
        instance.finish()
        assert calls == []
        _run_all(clock, [instance])
        assert calls == ["idle"]
        scheduler.enqueue(Probe().request)
        _run_all(clock, [instance])
        assert calls == ["idle"]

    def test_on_idle_calls_when_the_last_queued_request_is_cancelled(self) -> None:
        calls: list[str] = []
        scheduler, probe = self.make([FakeInstance()], ManualClock()), Probe()
        scheduler.enqueue(probe.request)
        scheduler.on_idle(lambda: calls.append("idle"))
        probe.request.cancel()
        assert calls == ["idle"]

    def test_on_idle_calls_after_batches_that_ran_in_place(self) -> None:
        clock, calls = ManualClock(), []
        scheduler = self.make([InPlaceInstance()], clock)
        scheduler.enqueue(Probe().request)
        scheduler.on_idle(lambda: calls.append("idle"))
        clock.settle()
        assert calls == ["idle"]

    def test_on_idle_waits_until_the_instance_has_returned_from_submit(self) -> None:
        clock, instance, seen = ManualClock(), _SubmitWatch(), []
        scheduler = self.make([instance], clock)
        scheduler.enqueue(Probe().request)
        scheduler.on_idle(lambda: seen.append(instance.is_in_submit))
        clock.settle()
        assert seen == [False]

    def test_batches_that_run_in_place_need_no_recursion(self) -> None:
        clock, instance, probes = ManualClock(), InPlaceInstance(), [Probe() for _ in range(5000)]
        scheduler = self.make([instance], clock)
        for probe in probes:
            scheduler.enqueue(probe.request)
        clock.settle()
        assert {1} == {probe.end_count for probe in probes}
        assert (scheduler.pending_count(), scheduler.running_count()) == (0, 0)

    def test_a_request_that_is_sent_by_the_end_of_another_needs_no_recursion(self) -> None:
        clock, instance, probes = ManualClock(), InPlaceInstance(), [Probe() for _ in range(5000)]
        scheduler = self.make([instance], clock)
        for probe, follower in pairwise(probes):
            probe.on_end = lambda follower=follower: scheduler.enqueue(follower.request)
        scheduler.enqueue(probes[0].request)
        clock.settle()
        assert {1} == {probe.end_count for probe in probes}

    def test_an_instance_that_is_removed_while_idle_gets_no_work_until_it_is_added(self) -> None:
        clock, instance, probe = ManualClock(), FakeInstance(), Probe()
        scheduler = self.make([instance], clock)
        scheduler.remove(instance)
        scheduler.enqueue(probe.request)
        clock.settle()
        assert (instance.batches, scheduler.pending_count(), scheduler.running_count()) == ([], 1, 0)
        scheduler.add(instance)
        clock.settle()
        instance.finish()
        assert (probe.end_count, scheduler.pending_count(), scheduler.running_count()) == (1, 0, 0)

    def test_an_instance_that_is_removed_in_the_turn_of_a_request_gets_no_work(self) -> None:
        clock, instance = ManualClock(), FakeInstance()
        scheduler = self.make([instance], clock)
        scheduler.enqueue(Probe().request)
        scheduler.remove(instance)
        clock.settle()
        assert (instance.batches, scheduler.pending_count()) == ([], 1)

    def test_an_instance_that_is_removed_while_it_runs_counts_until_it_is_done_and_then_rests(self) -> None:
        clock, instance, probes = ManualClock(), FakeInstance(), [Probe(), Probe()]
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probes[0].request)
        clock.settle()
        scheduler.remove(instance)
        scheduler.enqueue(probes[1].request)
        clock.settle()
        assert (scheduler.pending_count(), scheduler.running_count()) == (1, 1)
        instance.finish()
        clock.settle()
        assert (len(instance.batches), scheduler.pending_count(), scheduler.running_count()) == (1, 1, 0)

    def test_an_instance_that_is_removed_for_good_says_once_when_it_is_free(self) -> None:
        clock, instances, probe = ManualClock(), [FakeInstance("a"), FakeInstance("b")], Probe()
        scheduler = self.make(instances, clock)
        freed: list[str] = []
        scheduler.enqueue(probe.request)
        clock.settle()
        for instance in instances:
            scheduler.remove(instance, lambda name=instance.name: freed.append(name))
        running = next(instance for instance in instances if instance.batches)
        assert freed == [instance.name for instance in instances if instance is not running]
        running.finish()
        clock.settle()
        assert sorted(freed) == ["a", "b"]

    def test_an_instance_that_is_added_again_while_it_runs_isnt_let_go(self) -> None:
        clock, instance, probe = ManualClock(), FakeInstance(), Probe()
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probe.request)
        clock.settle()
        freed: list[bool] = []
        scheduler.remove(instance, lambda: freed.append(True))
        scheduler.add(instance)
        instance.finish()
        clock.settle()
        assert freed == []

    def test_an_instance_that_is_added_while_it_runs_gets_work_when_it_is_done(self) -> None:
        clock, instance, probes = ManualClock(), FakeInstance(), [Probe(), Probe()]
        scheduler = self.make([instance], clock)
        scheduler.enqueue(probes[0].request)
        clock.settle()
        scheduler.remove(instance)
        scheduler.add(instance)
        scheduler.enqueue(probes[1].request)
        clock.settle()
        assert len(instance.batches) == 1
        instance.finish()
        clock.settle()
        instance.finish()
        assert [probe.end_count for probe in probes] == [1, 1]

    def test_an_instance_that_is_added_twice_gets_one_batch_at_a_time(self) -> None:
        clock, instance, probes = ManualClock(), FakeInstance(), [Probe() for _ in range(3)]
        scheduler = self.make([], clock)
        for probe in probes:
            scheduler.enqueue(probe.request)
        scheduler.add(instance)
        scheduler.add(instance)
        _run_all(clock, [instance])
        assert [probe.end_count for probe in probes] == [1, 1, 1]

    def test_work_goes_on_on_the_other_instances_when_one_is_removed(self) -> None:
        clock, instances, probes = ManualClock(), [FakeInstance("a"), FakeInstance("b")], [Probe() for _ in range(4)]
        scheduler = self.make(instances, clock)
        scheduler.remove(instances[0])
        for probe in probes:
            scheduler.enqueue(probe.request)
        _run_all(clock, instances)
        assert ([probe.end_count for probe in probes], instances[0].batches) == ([1, 1, 1, 1], [])

    def test_fail_queued_ends_what_is_queued_and_leaves_what_runs(self) -> None:
        clock, instance, calls = ManualClock(), FakeInstance(), []
        scheduler, running, queued = self.make([instance], clock), Probe(), [Probe(), Probe()]
        scheduler.enqueue(running.request)
        clock.settle()
        for probe in queued:
            scheduler.enqueue(probe.request)
        scheduler.fail_queued(unavailable("no worker"))
        assert [probe.error and probe.error.message for probe in queued] == ["no worker", "no worker"]
        assert (running.end_count, scheduler.pending_count(), scheduler.running_count()) == (0, 0, 1)
        scheduler.on_idle(lambda: calls.append("idle"))
        instance.finish()
        clock.settle()
        assert (running.error, running.end_count, len(instance.batches), calls) == (None, 1, 1, ["idle"])

    def test_fail_queued_makes_a_scheduler_idle_that_nothing_runs_in(self) -> None:
        clock, calls = ManualClock(), []
        scheduler = self.make([], clock)
        scheduler.enqueue(Probe().request)
        scheduler.on_idle(lambda: calls.append("idle"))
        scheduler.fail_queued(unavailable("no worker"))
        assert calls == ["idle"]

    def test_a_request_that_is_failed_out_of_the_queue_may_cancel_another_one_there(self) -> None:
        scheduler, first, second = self.make([], ManualClock()), Probe(), Probe()
        scheduler.enqueue(first.request)
        scheduler.enqueue(second.request)
        first.on_end = second.request.cancel
        scheduler.fail_queued(unavailable("no worker"))
        assert (first.end_count, second.end_count, scheduler.pending_count()) == (1, 1, 0)

    def test_each_request_ends_once_and_runs_once_unless_cancelled_before(self) -> None:
        @given(OPERATIONS, st.integers(1, 3))
        def check(operations: list[tuple[str, int]], instance_count: int) -> None:
            clock, instances = ManualClock(), [FakeInstance(f"fake_{i}") for i in range(instance_count)]
            scheduler, history = self.make(instances, clock), _History(instances)
            for operation, which in operations:
                history.apply(operation, which, scheduler, clock)
                history.check_counts(scheduler)
            for instance in instances:
                scheduler.add(instance)
            _run_all(clock, instances)
            history.check_end(scheduler)

        check()


class _SubmitWatch(InPlaceInstance):
    """Knows whether a call of its `submit` is under way."""

    is_in_submit = False

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        self.is_in_submit = True
        super().submit(batch, on_done)
        self.is_in_submit = False


class _History:
    """The requests sent so far, and those that were cancelled while queued."""

    def __init__(self, instances: Sequence[FakeInstance]) -> None:
        self.instances = instances
        self.probes: list[Probe] = []
        self.dropped: set[Probe] = set()

    def apply(self, operation: str, which: int, scheduler: Scheduler, clock: ManualClock) -> None:
        instance = self.instances[which % len(self.instances)]
        if operation == "enqueue":
            self.probes.append(Probe())
            scheduler.enqueue(self.probes[-1].request)
        elif operation == "turn":
            clock.run_turn()
        elif operation == "cancel" and which < len(self.probes):
            self.cancel(self.probes[which])
        elif operation in ("finish", "fail") and instance.is_busy:
            getattr(instance, operation)()
        elif operation in ("remove", "add"):
            getattr(scheduler, operation)(instance)

    def cancel(self, probe: Probe) -> None:
        if not probe.end_count and probe.request.on_cancel is not None:
            self.dropped.add(probe)
        probe.request.cancel()

    def check_counts(self, scheduler: Scheduler) -> None:
        """Pending are the requests that no instance has had and nobody has cancelled; running are the busy instances'."""
        handed = sum(len(batch.requests) for instance in self.instances for batch in instance.batches)
        running = sum(len(instance.batches[-1].requests) for instance in self.instances if instance.is_busy)
        assert len(self.probes) - len(self.dropped) - handed == scheduler.pending_count()
        assert running == scheduler.running_count()

    def check_end(self, scheduler: Scheduler) -> None:
        ran = [request for instance in self.instances for batch in instance.batches for request in batch.requests]
        assert [1] * len(self.probes) == [probe.end_count for probe in self.probes]
        assert [int(probe not in self.dropped) for probe in self.probes] == [ran.count(probe.request) for probe in self.probes]
        assert (scheduler.pending_count(), scheduler.running_count()) == (0, 0)


def _run_all(clock: ManualClock, instances: Sequence[FakeInstance]) -> None:
    """Let every instance end its batches until nothing is left to run."""
    clock.settle()
    while any(instance.is_busy for instance in instances):
        for instance in instances:
            if instance.is_busy:
                instance.finish()
        clock.settle()
