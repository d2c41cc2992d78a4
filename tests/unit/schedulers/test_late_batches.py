"""Schedulers whose instances need resources form a batch when these are there: until then its requests are in the queue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, InPlaceInstance, Probe
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from naiad.config.plan import InstancePlan, QueuePolicy, ResourceNeed
from naiad.errors import Code, unavailable
from naiad.request.batch import Instance, Scheduler
from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.rate_limiter.limiter import RateLimiter

MILLISECOND_NS = 1_000_000


class Waits:
    """Who waits for whom, as pairs of an instance's name and a model's."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()

    def waits_for(self, instance: Instance, model: str) -> bool:
        return (instance.name, model) in self.pairs


class Bench:
    """One unit of R, and models that need it."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.waits = Waits()
        self.limiter = RateLimiter(
            self.clock, {(name, None): count for name, count in (limits or {"R": 1}).items()}, self.waits
        )

    def seat(self, inner: FakeInstance, priority: int = 1, **needs: int) -> Instance:
        resources = tuple(ResourceNeed(name, count, True) for name, count in (needs or {"R": 1}).items())
        return self.limiter.limit(
            inner.name, InstancePlan(inner.name, "CPU", -1, inner.name, False, resources, priority), inner
        )

    def batcher(self, name: str, inners: Sequence[FakeInstance] = (), **plan) -> tuple[FakeInstance, DynamicScheduler]:
        made = list(inners) or [FakeInstance(name)]
        return made[0], DynamicScheduler([self.seat(inner) for inner in made], self.clock, make_plan(**plan))

    def direct(self, name: str) -> tuple[FakeInstance, DirectScheduler]:
        inner = FakeInstance(name)
        return inner, DirectScheduler([self.seat(inner)], self.clock)

    def ask(self, scheduler: Scheduler, count: int = 1, **fields) -> list[Probe]:
        probes = [Probe() for _ in range(count)]
        for probe in probes:
            for name, value in fields.items():
                setattr(probe.request, name, value)
            scheduler.enqueue(probe.request)
        self.clock.settle()
        return probes

    def check_nothing_is_held(self) -> None:
        """Everybody who needs R gets it."""
        assert self.limiter.waiting_count() == 0
        inner, scheduler = self.direct("last")
        self.ask(scheduler)
        assert len(inner.batches) == 1
        inner.finish()


def test_what_comes_while_a_batch_waits_for_resources_joins_it():
    bench = Bench()
    (holder, first), (inner, second) = bench.batcher("holder"), bench.batcher("b", max_batch_size=8)
    bench.ask(first)
    bench.ask(second)
    bench.ask(second, 3)
    assert (second.pending_count(), second.running_count(), bench.limiter.waiting_count()) == (4, 0, 1)
    holder.finish()
    assert (inner.sizes, second.pending_count()) == ([4], 0)
    inner.finish()
    bench.check_nothing_is_held()


def test_a_deadline_passes_on_time_while_resources_lack():
    bench = Bench()
    (holder, first), (inner, second) = bench.batcher("holder"), bench.batcher("b", default_policy=QueuePolicy(timeout_us=1000))
    bench.ask(first)
    (late,) = bench.ask(second)
    bench.clock.advance(MILLISECOND_NS)
    assert late.error.message.endswith("Request timeout expired")
    assert bench.limiter.waiting_count() == 0
    holder.finish()
    assert inner.batches == []
    bench.check_nothing_is_held()


def test_a_higher_priority_that_comes_while_resources_lack_goes_first():
    bench = Bench()
    (holder, first), (inner, second) = bench.batcher("holder"), bench.batcher("b", max_batch_size=1, levels=2, default_level=2)
    bench.ask(first)
    (low,), (high,) = bench.ask(second, priority=2), bench.ask(second, priority=1)
    holder.finish()
    assert inner.batches[0].requests == [high.request]
    inner.finish()
    bench.clock.settle()
    assert inner.batches[1].requests == [low.request]


@pytest.mark.parametrize("kind", ["batcher", "direct"])
def test_what_is_given_up_while_resources_lack_never_runs_and_nobody_waits_for_it(kind):
    bench = Bench()
    (holder, first), (inner, second) = bench.direct("holder"), getattr(bench, kind)("b")
    bench.ask(first)
    (probe,) = bench.ask(second)
    probe.request.cancel()
    assert (probe.error.code, second.pending_count(), bench.limiter.waiting_count()) == (Code.CANCELLED, 0, 0)
    holder.finish()
    assert inner.batches == []
    bench.ask(second)
    assert len(inner.batches) == 1
    inner.finish()
    bench.check_nothing_is_held()


def test_a_batch_that_waits_for_more_holds_no_resources_meanwhile():
    bench = Bench()
    inner, scheduler = bench.batcher("b", max_batch_size=4, preferred=(4,), delay_us=5000)
    other, direct = bench.direct("other")
    bench.ask(scheduler)
    bench.ask(direct)
    assert (len(other.batches), inner.batches) == (1, [])
    other.finish()
    bench.clock.advance(5 * MILLISECOND_NS)
    assert inner.sizes == [1]


@pytest.mark.parametrize("kind", ["batcher", "direct"])
def test_a_second_instance_that_gets_its_resources_late_gives_them_back_when_nothing_is_left(kind):
    bench = Bench(R=1)
    scheduler = (
        DirectScheduler([], bench.clock) if kind == "direct" else DynamicScheduler([], bench.clock, make_plan(max_batch_size=1))
    )
    inners = [FakeInstance(f"b{number}") for number in range(2)]
    for inner in inners:
        scheduler.add(bench.seat(inner))
    bench.ask(scheduler, 2)
    assert sorted(len(inner.batches) for inner in inners) == [0, 1]
    (busy,) = [inner for inner in inners if inner.is_busy]
    busy.finish()
    bench.clock.settle()
    assert sum(len(inner.batches) for inner in inners) == 2
    for inner in inners:
        if inner.is_busy:
            inner.finish()
    bench.clock.settle()
    bench.check_nothing_is_held()


@pytest.mark.parametrize("kind", ["batcher", "direct"])
def test_a_circle_fails_what_would_have_run_and_the_model_goes_on(kind):
    bench = Bench()
    (holder, first), (inner, second) = bench.direct("holder"), getattr(bench, kind)("b")
    bench.ask(first)
    bench.waits.pairs.add(("holder", "b"))
    (probe,) = bench.ask(second)
    assert "needs resource 'R', which 'holder' holds while it waits for the answer of 'b'" in probe.error.message
    assert (second.pending_count(), bench.limiter.waiting_count()) == (0, 0)
    bench.waits.pairs.clear()
    bench.ask(second)
    holder.finish()
    assert len(inner.batches) == 1
    inner.finish()
    bench.check_nothing_is_held()


@pytest.mark.parametrize("kind", ["batcher", "direct"])
def test_an_instance_that_is_removed_while_it_waits_waits_no_longer_and_may_come_back(kind):
    bench = Bench()
    (holder, first), (inner, second) = bench.direct("holder"), getattr(bench, kind)("b")
    (seat,) = second._idle
    bench.ask(first)
    bench.ask(second)
    freed: list[bool] = []
    second.remove(seat, lambda: freed.append(True))
    assert (freed, second.pending_count(), bench.limiter.waiting_count()) == ([True], 1, 0)
    holder.finish()
    bench.clock.settle()
    assert inner.batches == []
    second.add(seat)
    bench.clock.settle()
    assert len(inner.batches) == 1
    inner.finish()
    bench.check_nothing_is_held()


@pytest.mark.parametrize("kind", ["batcher", "direct"])
def test_what_is_failed_out_of_the_queue_is_waited_for_no_longer(kind):
    bench = Bench()
    (holder, first), (_, second) = bench.direct("holder"), getattr(bench, kind)("b")
    bench.ask(first)
    (probe,) = bench.ask(second)
    second.fail_queued(unavailable("gone"))
    assert (probe.error.code, bench.limiter.waiting_count()) == (Code.UNAVAILABLE, 0)
    holder.finish()
    bench.check_nothing_is_held()


class World:
    """Five instances of four models that need R, of which there are two, and S, of which there is one."""

    NEEDS = ({"R": 1}, {"R": 2}, {"R": 1, "S": 1}, {"S": 1}, {"R": 1})

    def __init__(self) -> None:
        self.bench = bench = Bench(R=2, S=1)
        self.clock = bench.clock
        self.inners = [InPlaceInstance(f"m{number}") if number == 3 else FakeInstance(f"m{number}") for number in range(5)]
        self.seats = [
            bench.seat(inner, priority=number + 1, **need) for number, (inner, need) in enumerate(zip(self.inners, self.NEEDS))
        ]
        late = make_plan(max_batch_size=2, default_policy=QueuePolicy(timeout_us=2000))
        delayed = make_plan(max_batch_size=4, preferred=(4,), delay_us=1000)
        both = DirectScheduler(self.seats[3:], self.clock)
        self.homes: list[Scheduler] = [
            DirectScheduler(self.seats[:1], self.clock),
            DynamicScheduler(self.seats[1:2], self.clock, late),
            DynamicScheduler(self.seats[2:3], self.clock, delayed),
            both,
            both,
        ]
        self.probes: list[Probe] = []

    def act(self, what: str, number: int) -> None:
        getattr(self, what)(number)
        self.check()

    def ask(self, number: int) -> None:
        self.probes.append(Probe())
        self.homes[number % 5].enqueue(self.probes[-1].request)

    def turn(self, number: int) -> None:
        self.clock.run_turn()

    def wait(self, number: int) -> None:
        self.clock.advance(number * 100_000)

    def finish(self, number: int) -> None:
        if self.inners[number % 5].is_busy:
            self.inners[number % 5].finish()

    def fail(self, number: int) -> None:
        if self.inners[number % 5].is_busy:
            self.inners[number % 5].fail()

    def cancel(self, number: int) -> None:
        if self.probes:
            self.probes[number % len(self.probes)].request.cancel()

    def remove(self, number: int) -> None:
        self.homes[number % 5].remove(self.seats[number % 5])

    def add(self, number: int) -> None:
        self.homes[number % 5].add(self.seats[number % 5])

    def check(self) -> None:
        """Nothing is given to more than there is of it."""
        used = [need for inner, need in zip(self.inners, self.NEEDS) if inner.is_busy]
        assert sum(need.get("R", 0) for need in used) <= 2
        assert sum(need.get("S", 0) for need in used) <= 1

    def run_out(self) -> None:
        for number in range(5):
            self.add(number)
        for _ in range(len(self.probes) + 10):
            self.clock.advance(MILLISECOND_NS)
            for number in range(5):
                self.act("finish", number)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "turn", "finish", "fail", "cancel", "wait", "remove", "add"]), st.integers(0, 30)),
        max_size=80,
    )
)
def test_whatever_happens_no_resource_is_given_twice_and_every_request_ends_once(steps):
    world = World()
    for what, number in steps:
        world.act(what, number)
    world.run_out()
    assert [probe.end_count for probe in world.probes] == [1] * len(world.probes)
    assert [(home.pending_count(), home.running_count()) for home in world.homes] == [(0, 0)] * 5
    assert world.bench.limiter.waiting_count() == 0
    assert not any(seat.claim.is_running for seat in world.seats)
