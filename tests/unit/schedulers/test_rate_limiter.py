"""Instances that wait for resources: their batches run once these are there, and standstills and circles end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_execution import Probe
from manual_clock import ManualClock

from naiad.config.plan import InstancePlan, ResourceNeed
from naiad.errors import Code, InferenceServerError
from naiad.request.batch import Batch
from naiad.schedulers.rate_limiter.limiter import STALL_NS, RateLimiter
from naiad.schedulers.rate_limiter.policy import MOST_PASSES


class Inner:
    """An instance whose batches end when the test says so, or at once."""

    def __init__(self, name: str, is_in_place: bool = False) -> None:
        self.name = name
        self.is_in_place = is_in_place
        self.running: list[tuple[Batch, object]] = []
        self.count = 0

    def submit(self, batch, on_done):
        self.count += 1
        self.running.append((batch, on_done))
        if self.is_in_place:
            self.end()

    def end(self):
        _, on_done = self.running.pop()
        on_done(self)


class Waits:
    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()

    def waits_for(self, instance, model):
        return (instance.name, model) in self.pairs


class Bench:
    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.waits = Waits()
        self.limiter = RateLimiter(self.clock, {(name, None): count for name, count in limits.items()}, self.waits)
        self.done: list[object] = []
        self.errors: list[InferenceServerError] = []

    def instance(self, model: str, is_in_place: bool = False, priority: int = 1, **needs: int):
        resources = tuple(ResourceNeed(name, count, True) for name, count in needs.items())
        inner = Inner(model, is_in_place)
        return inner, self.limiter.limit(model, InstancePlan(model, "CPU", -1, model, False, resources, priority), inner)

    def submit(self, seat) -> None:
        request = SimpleNamespace(responder=SimpleNamespace(fail=self.errors.append, has_ended=False))
        seat.submit(Batch([request], 1), self.done.append)


def test_an_instance_that_needs_nothing_stands_for_itself():
    inner, seat = Bench().instance("a")
    assert seat is inner


def test_two_that_need_the_same_run_one_after_the_other():
    bench = Bench()
    (b, b_seat), (c, c_seat) = bench.instance("b", R=1), bench.instance("c", R=1)
    bench.submit(b_seat)
    bench.submit(c_seat)
    assert (len(b.running), len(c.running), bench.limiter.waiting_count()) == (1, 0, 1)
    b.end()
    assert (bench.done, len(c.running)) == ([b_seat], 1)
    c.end()
    assert bench.done == [b_seat, c_seat]


def test_batches_that_run_in_place_one_after_the_other_do_not_pile_up_on_the_stack():
    bench = Bench()
    inner, seat = bench.instance("b", is_in_place=True, R=1)
    left = [3000]

    def again(instance) -> None:
        left[0] -= 1
        if left[0]:
            bench.limiter._clock.call_soon(lambda: seat.submit(Batch([Probe().request], 1), again))

    seat.submit(Batch([Probe().request], 1), again)
    bench.clock.settle()
    assert (inner.count, left) == (3000, [0])


def test_a_circle_is_refused_at_once_by_names():
    bench = Bench()
    (b, b_seat), (c, c_seat) = bench.instance("b", R=1), bench.instance("c", R=1)
    bench.submit(b_seat)
    bench.waits.pairs.add(("b", "c"))
    bench.submit(c_seat)
    [error] = bench.errors
    assert error.code is Code.UNAVAILABLE
    assert "model 'c' needs resource 'R', which 'b' holds while it waits for the answer of 'c'" in error.message
    assert (bench.done, bench.limiter.waiting_count()) == ([c_seat], 0)
    b.end()
    assert c.running == []


def test_a_circle_that_comes_about_later_is_refused_in_time():
    bench = Bench()
    (b, b_seat), (_, c_seat) = bench.instance("b", R=1), bench.instance("c", R=1)
    bench.submit(b_seat)
    bench.submit(c_seat)
    bench.waits.pairs.add(("b", "c"))
    bench.clock.advance(2 * STALL_NS)
    assert len(bench.errors) == 1
    b.end()


def test_one_that_runs_and_waits_for_one_that_may_not_pass_does_not_stand_still_for_ever():
    bench = Bench()
    (b, b_seat), (both, both_seat), (x, x_seat) = (
        bench.instance("b", R=1),
        bench.instance("both", R=1, S=1),
        bench.instance("x", S=1),
    )
    bench.submit(b_seat)
    bench.submit(both_seat)
    both_seat.claim.passes = MOST_PASSES
    bench.submit(x_seat)
    assert x.running == []
    bench.clock.advance(3 * STALL_NS)
    assert (len(x.running), bench.errors) == (1, [])
    x.end()
    b.end()
    assert len(both.running) == 1


def test_a_model_that_goes_fails_what_still_waits_and_frees_nothing_twice():
    bench = Bench()
    (b, b_seat), (_, c_seat) = bench.instance("b", R=1), bench.instance("c", R=1)
    bench.submit(b_seat)
    bench.submit(c_seat)
    bench.limiter.forget(c_seat)
    bench.limiter.forget(c_seat)
    assert [error.message for error in bench.errors] == ["model 'c' was unloaded"]
    b.end()
    assert bench.limiter.waiting_count() == 0


def test_an_instance_that_needs_more_than_there_may_be_is_refused():
    with pytest.raises(InferenceServerError, match='Resource count for "R" is limited to 1'):
        Bench(R=1).instance("b", R=2)


def test_a_new_instance_does_not_have_the_others_wait_until_it_has_caught_up():
    bench = Bench()
    b, b_seat = bench.instance("b", R=1)
    for _ in range(50):
        bench.submit(b_seat)
        b.end()
    bench.submit(b_seat)
    _, late = bench.instance("late", R=1)
    assert late.claim.score == b_seat.claim.score == 51
