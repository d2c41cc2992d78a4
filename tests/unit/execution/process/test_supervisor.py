"""An instance has one worker at a time: a dead one is replaced with backoff, and none is left when the instance closes."""

from __future__ import annotations

import asyncio

import pytest
from event_loops import run_on_asyncio, until
from fake_worker import Bench, FakeProcess

from naiad.errors import internal
from naiad.execution.process.context import WorkerLimits
from naiad.execution.process.life.process import WorkerProcess
from naiad.execution.process.life.settings import WorkerSettings
from naiad.execution.process.life.supervisor import Supervisor
from naiad.worker.frames import Kind

AT_ONCE = WorkerSettings(restart_delay_s=0, restart_max_delay_s=0, stop_timeout_s=5)


class Starts:
    """The processes that are started: `made` so far, `next_fault` the answer of the next ones to INITIALIZE."""

    def __init__(self) -> None:
        self.made: list[FakeProcess] = []
        self.initialize: object = {}
        self.fault: Exception | None = None

    async def start(self, program, settings, identity, hooks, share) -> FakeProcess:
        if self.fault is not None:
            raise self.fault
        process = FakeProcess()
        process.hooks = hooks
        process.answers[Kind.INITIALIZE] = self.initialize
        self.made.append(process)
        return process


@pytest.fixture
def starts(monkeypatch) -> Starts:
    made = Starts()
    monkeypatch.setattr(WorkerProcess, "start", made.start)
    return made


def on_bench(test, **fields) -> None:
    async def run() -> None:
        bench = Bench(settings=AT_ONCE, **fields)
        supervisor = bench.instance._supervisor
        supervisor._start = Supervisor._start.__get__(supervisor)
        await test(bench)
        await bench.instance.close()

    run_on_asyncio(run())


def test_a_dead_worker_is_replaced_and_its_metrics_go(starts):
    async def check(bench):
        bench.process.die()
        await until(lambda: bench.owner.states[-1] == "up" and starts.made)
        assert starts.made[0].asked == [Kind.LOAD, Kind.INITIALIZE]
        assert bench.owner.restart_counts == {"exit": 1}
        assert len(bench.metrics.dropped) == 1
        probe = bench.probe()
        bench.submit(probe)
        starts.made[0].answer(starts.made[0].take(Kind.EXECUTE)[0])
        assert probe.error is None
        await bench.instance.close()
        assert starts.made[0].stops == [5]
        bench.host.waits.add("m", bench.instance)

    on_bench(check)


def test_a_start_that_fails_is_tried_again_and_leaves_nothing(starts):
    async def check(bench):
        starts.initialize = internal("no weights")
        bench.process.die()
        await until(lambda: len(starts.made) >= 3)
        assert "lasting" in bench.owner.states
        assert starts.made[0].stops == [0]
        starts.initialize = {}
        await until(lambda: bench.owner.states[-1] == "up")
        assert len(bench.metrics.dropped) == len(starts.made)  # The first worker's, and those of each failed start.

    on_bench(check)


def test_a_worker_that_dies_before_it_is_adopted_is_replaced_too(starts):
    async def check(bench):
        process = FakeProcess()
        process.die()
        supervisor = bench.instance._supervisor
        supervisor.adopt(bench.started(process))
        await until(lambda: starts.made and bench.owner.states[-1] == "up")

    on_bench(check)


def test_close_ends_a_start_that_is_under_way(starts):
    async def check(bench):
        starts.initialize = asyncio.get_running_loop().create_future()
        bench.process.die()
        await until(lambda: starts.made and Kind.INITIALIZE in starts.made[0].asked)
        await bench.instance.close()
        assert starts.made[0].stops == [0]
        assert len(bench.metrics.dropped) == 2
        assert bench.owner.states[-1] == "down"
        bench.host.waits.add("m", bench.instance)

    on_bench(check)


def test_a_worker_over_its_limit_is_replaced_once_nothing_is_open_in_it(starts):
    async def check(bench):
        first, probes = bench.process, [bench.probe(), bench.probe()]
        first.held_bytes = 101
        bench.submit(probes[0])
        (execute,) = first.take(Kind.EXECUTE)
        bench.instance._supervisor._look()
        assert first.stops == []
        first.answer(execute)
        assert probes[0].error is None
        bench.submit(probes[1])
        await until(lambda: starts.made and starts.made[0].sent)
        assert first.stops == [5]
        starts.made[0].answer(starts.made[0].take(Kind.EXECUTE)[0])
        assert (probes[1].error, bench.owner.restart_counts) == (None, {"memory_limit": 1})

    on_bench(check, limits=WorkerLimits(memory_bytes=100))


def test_a_start_that_the_system_refuses_is_tried_again(starts):
    async def check(bench):
        starts.fault = OSError(24, "Too many open files")
        bench.process.die()
        await until(lambda: "lasting" in bench.owner.states)
        starts.fault = None
        await until(lambda: bench.owner.states[-1] == "up")

    on_bench(check)
