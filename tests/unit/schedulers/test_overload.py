"""Who is refused at once since it could only be late, and who never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock

from naiad.config.plan import QueuePolicy
from naiad.errors import FailureReason, InferenceServerError, RefusedError
from naiad.request.batch import Batch, Instance
from naiad.request.request import InferRequest
from naiad.schedulers.dynamic.scheduler import DynamicScheduler

MS = 1_000_000
BATCH_MS = 20
MAX_BATCH = 8
DEADLINE_MS = 100
# What one instance does in a second, with full batches.
PEAK = 1000 / BATCH_MS * MAX_BATCH


class TimedInstance(FakeInstance):
    """Takes as long for a batch as `time_ns` says of its size."""

    def __init__(self, name: str, clock: ManualClock, time_ns: Callable[[int], int]) -> None:
        super().__init__(name)
        self._clock = clock
        self._time_ns = time_ns

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        super().submit(batch, on_done)
        self._clock.call_later(self._time_ns(batch.size), self.finish)


class Bench:
    """A scheduler of instances that take `batch_ms` for a batch of any size; `ended_ns` is when each request had its answer."""

    def __init__(self, *, instance_count: int = 1, batch_ms: float = BATCH_MS, **plan: Any) -> None:
        self.clock = ManualClock()
        self.batch_ms = batch_ms
        self.instances = [
            TimedInstance(f"fake_{number}", self.clock, lambda size: int(self.batch_ms * MS))
            for number in range(instance_count)
        ]
        plan = {"max_batch_size": MAX_BATCH, "refuses_early": True, **plan}
        self.scheduler = DynamicScheduler(self.instances, self.clock, make_plan(**plan))
        self.refusals: list[RefusedError] = []
        self.in_time = 0

    def ask(self, deadline_ms: float | None = None, priority: int = 0, batch_size: int = 1) -> Probe | None:
        """Send a request; return None when it is refused at once."""
        probe = Probe(batch_size=batch_size)
        request = probe.request
        request.priority = priority
        if deadline_ms is not None:
            request.deadline_ns = self.clock.now + int(deadline_ms * MS)
            probe.on_end = lambda: self._end(request)
        try:
            self.scheduler.enqueue(request)
        except RefusedError as error:
            self.refusals.append(error)
            request.responder.refuse()
            return None
        return probe

    def _end(self, request: InferRequest) -> None:
        assert request.deadline_ns is not None
        self.in_time += self.clock.now <= request.deadline_ns

    def load(self, per_second: float, seconds: float, **request: Any) -> None:
        """Let requests come evenly."""
        count = int(per_second * seconds)
        for _ in range(count):
            self.ask(**request)
            self.clock.advance(int(1e9 / per_second))

    def warm(self, batches: int = 5) -> None:
        """Let so many full batches run, and then all be idle."""
        for _ in range(batches * MAX_BATCH + 1):
            self.ask()
        self.drain()

    def drain(self) -> None:
        self.clock.advance(10**11)
        assert self.scheduler.pending_count() == self.scheduler.running_count() == 0


REJECT = QueuePolicy(timeout_us=DEADLINE_MS * 1000)


def test_without_refusals_an_overload_of_three_times_answers_nobody_in_time() -> None:
    """The rule that early refusals are for: who waits for all others is late by its own wait."""
    bench = Bench(refuses_early=False)
    bench.warm()
    bench.load(3 * PEAK, 4, deadline_ms=DEADLINE_MS)
    assert bench.in_time < 0.1 * 4 * PEAK


@pytest.mark.parametrize("instance_count", [1, 3])
@pytest.mark.parametrize("overload", [1.2, 3, 10])
def test_goodput_stays_at_its_peak_however_large_the_overload(overload: float, instance_count: int) -> None:
    bench = Bench(instance_count=instance_count)
    bench.ask(deadline_ms=DEADLINE_MS)
    bench.warm()
    bench.load(overload * instance_count * PEAK, 4, deadline_ms=DEADLINE_MS)
    assert bench.in_time >= 0.9 * 4 * instance_count * PEAK
    assert bench.refusals


def test_goodput_stays_at_its_peak_when_batches_take_now_longer_now_shorter() -> None:
    bench = Bench()
    times = iter(range(10**6))
    bench.instances[0]._time_ns = lambda size: (BATCH_MS + next(times) * 7 % 9 - 4) * MS
    bench.load(3 * PEAK, 4, deadline_ms=DEADLINE_MS)
    assert bench.in_time >= 0.9 * 4 * PEAK


def test_goodput_with_a_time_out_of_the_queue_stays_at_its_peak_too() -> None:
    bench = Bench(default_policy=REJECT)
    bench.load(3 * PEAK, 4, deadline_ms=DEADLINE_MS + BATCH_MS)
    assert bench.in_time >= 0.9 * 4 * PEAK
    assert len(bench.refusals) > PEAK


def test_nobody_is_refused_below_the_peak() -> None:
    for bench in (Bench(), Bench(default_policy=REJECT), Bench(instance_count=3)):
        bench.load(0.9 * PEAK * len(bench.instances), 4, deadline_ms=DEADLINE_MS)
        assert not bench.refusals


@pytest.mark.parametrize("idle_ms", [0, 60_000])
def test_a_burst_that_fits_is_not_refused_whatever_ran_before(idle_ms: int) -> None:
    bench = Bench(default_policy=REJECT)
    for _ in range(10):  # Batches of one: what a model does when little comes.
        bench.ask()
        bench.clock.advance(BATCH_MS * MS)
    bench.clock.advance(idle_ms * MS)
    burst = [bench.ask(deadline_ms=DEADLINE_MS + BATCH_MS) for _ in range(MAX_BATCH * 4)]
    assert None not in burst
    bench.drain()
    assert bench.in_time == len(burst)


def test_a_model_that_has_not_run_refuses_nobody() -> None:
    bench = Bench(default_policy=REJECT)
    assert None not in [bench.ask(deadline_ms=1) for _ in range(1000)]


def test_who_has_no_deadline_is_never_refused() -> None:
    bench = Bench()
    bench.ask(deadline_ms=1000)
    bench.warm()
    assert None not in [bench.ask() for _ in range(10_000)]
    delay = Bench(default_policy=QueuePolicy(timeout_us=1000, is_delay=True))
    delay.ask(deadline_ms=1000)
    delay.warm()
    assert None not in [delay.ask() for _ in range(10_000)]


def test_a_model_that_opts_out_refuses_nobody() -> None:
    bench = Bench(default_policy=REJECT, refuses_early=False)
    bench.warm()
    assert None not in [bench.ask(deadline_ms=1) for _ in range(1000)]


def test_a_refusal_says_the_estimate_the_deadline_and_when_to_try_again() -> None:
    bench = Bench(default_policy=REJECT)
    bench.warm()
    while bench.ask() is not None:
        pass
    error = bench.refusals[0]
    assert error.message == (
        "[request id: <id_unknown>] the model is overloaded: by the speed of its last batches it takes about 140 ms until it "
        "runs, the request's deadline is in 100 ms; retry in 1 s"
    )
    assert (error.retry_after_s, error.refusal, error.reason) == (1, "too_late", FailureReason.REJECTED)


def test_when_to_try_again_is_when_the_queue_is_short_enough() -> None:
    bench = Bench(batch_ms=1000)
    bench.ask(deadline_ms=60_000)
    bench.warm()
    for _ in range(MAX_BATCH * 10):
        bench.ask()
    assert bench.ask(deadline_ms=5000) is None
    assert bench.refusals[0].retry_after_s == 6


def test_a_full_queue_says_that_it_is_full() -> None:
    bench = Bench(default_policy=QueuePolicy(timeout_us=1000, max_size=2))
    for _ in range(5):
        bench.ask()
        bench.drain()
    for _ in range(MAX_BATCH):
        bench.ask()
    bench.clock.settle()
    bench.clock.advance(BATCH_MS * MS - 1)
    assert [bench.ask() is None for _ in range(3)] == [False, False, True]
    assert bench.refusals[-1].message.endswith("Exceeds maximum queue size")
    assert bench.refusals[-1].refusal == "queue_full"


def test_only_what_goes_first_counts_against_a_request() -> None:
    bench = Bench(levels=3, default_level=3, default_policy=REJECT)
    bench.warm()
    while bench.ask(priority=3) is not None:
        pass
    assert bench.ask(priority=1) is not None
    assert bench.ask(priority=2) is not None
    assert bench.ask(priority=3) is None


def test_a_request_that_could_only_be_late_behind_the_running_batch_is_refused_with_an_empty_queue() -> None:
    bench = Bench(batch_ms=1000, default_policy=REJECT)
    for _ in range(3):
        bench.ask()
        bench.drain()
    bench.ask()
    bench.clock.advance(MS)
    assert bench.ask() is None
    bench.clock.advance(900 * MS)
    assert bench.ask() is not None


def test_an_idle_instance_takes_what_comes_so_that_a_model_that_is_fast_again_is_noticed() -> None:
    bench = Bench(batch_ms=10_000)
    bench.ask(deadline_ms=1)
    bench.warm()
    bench.batch_ms = 1
    bench.load(1000, 0.1, deadline_ms=DEADLINE_MS)
    before = len(bench.refusals)
    bench.load(1000, 1, deadline_ms=DEADLINE_MS)
    assert len(bench.refusals) == before


def test_a_model_that_becomes_slow_is_noticed_within_a_few_batches() -> None:
    bench = Bench()
    bench.load(PEAK / 2, 1, deadline_ms=DEADLINE_MS)
    assert not bench.refusals
    bench.batch_ms = 4 * BATCH_MS
    bench.load(PEAK, 0.5, deadline_ms=DEADLINE_MS)
    bench.in_time = 0
    bench.load(PEAK, 4, deadline_ms=2.5 * bench.batch_ms)
    assert bench.in_time >= 0.9 * PEAK


def test_one_slow_batch_changes_nothing() -> None:
    bench = Bench()
    bench.load(PEAK / 2, 1, deadline_ms=DEADLINE_MS)
    bench.batch_ms = 40 * BATCH_MS
    bench.ask()
    bench.clock.settle()
    bench.batch_ms = BATCH_MS
    bench.drain()
    assert None not in [bench.ask(deadline_ms=DEADLINE_MS) for _ in range(MAX_BATCH * 3)]


def test_a_refused_request_is_not_in_the_queue_and_leaves_no_timer() -> None:
    bench = Bench(default_policy=REJECT)
    bench.warm()
    while bench.ask() is not None:
        pass
    pending, timers = bench.scheduler.pending_count(), bench.clock.timer_count()
    assert bench.ask() is None
    assert (bench.scheduler.pending_count(), bench.clock.timer_count()) == (pending, timers)


def test_without_instances_nothing_is_known_and_nobody_refused() -> None:
    bench = Bench(default_policy=REJECT)
    bench.warm()
    bench.scheduler.remove(bench.instances[0])
    assert None not in [bench.ask() for _ in range(1000)]


def test_what_is_late_in_fact_has_the_words_that_clients_know() -> None:
    bench = Bench(default_policy=QueuePolicy(timeout_us=1000))
    bench.ask()
    bench.clock.settle()
    waiting = bench.ask()
    assert waiting is not None
    bench.clock.advance(2 * MS)
    assert isinstance(waiting.error, InferenceServerError)
    assert waiting.error.message.endswith("Request timeout expired")
