"""What the budget does with requests that wait, loads that end at the wrong time, and measures that turn out otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from loading import load_found
from model_folders import identity

from naiad.backends.identity.backend import IdentityBackend
from naiad.backends.table import BackendTable
from naiad.clock import LoopClock
from naiad.core.server import Identity, InferenceServer
from naiad.core.traffic.control import TrafficControl
from naiad.errors import Code, InferenceServerError, invalid_argument
from naiad.execution.placement import TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.load_waits import LoadWaits
from naiad.repository import manager
from naiad.repository.budget import keeper
from naiad.repository.budget.holding import Holding, Phase
from naiad.repository.budget.size import Need
from naiad.repository.control.places import with_state
from naiad.repository.layout import ScanResult, scan
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.loading.attempts import LoadRules
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Model, Runtime
from naiad.request.call import CallInput, InferCall

NAMES = ("a", "b", "c")
MEGABYTE = 1_000_000


class SteeredBackend(IdentityBackend):
    """The identity: loading waits for `gate`, raises `failure`, lets the process grow by `grows`; executing waits for `go`."""

    name = "steered"
    gate: ClassVar[threading.Event]
    go: ClassVar[threading.Event]
    failure: ClassVar[str]
    grows: ClassVar[int]
    held: ClassVar[int]
    open: ClassVar[list[str]]
    loads: ClassVar[list[str]]

    @classmethod
    def reset(cls) -> None:
        cls.gate, cls.go, cls.failure, cls.grows, cls.held = threading.Event(), threading.Event(), "", 0, 0
        cls.open, cls.loads = [], []
        cls.gate.set()
        cls.go.set()

    @classmethod
    def must_run_in_place(cls, plan):
        return False

    @classmethod
    def load(cls, plan, instance, files):
        assert cls.gate.wait(10)
        if cls.failure:
            raise ValueError(cls.failure)
        cls.held += cls.grows
        cls.open.append(plan.name)
        cls.loads.append(plan.name)
        loaded, go = super().load(plan, instance, files), cls.go

        def execute(inputs, outputs):
            assert go.wait(10)
            return loaded.execute(inputs, outputs)

        return SimpleNamespace(execute=execute, close=lambda: cls.open.remove(plan.name))


class Answer:
    """A sink, and the request's handle; `error` is the one it ended with."""

    def __init__(self) -> None:
        self.end: asyncio.Future[InferenceServerError | None] = asyncio.get_running_loop().create_future()
        self.handle: object = None

    def send(self, response, is_final):
        self.end.set_result(None)

    def fail(self, error):
        self.end.set_result(error)

    def when_writable(self, callback):
        return True


class Bench:
    """A repository with a limit of 250 MB, and a core in front of it."""

    def __init__(self, repository: RepositoryManager, found: ScanResult) -> None:
        assert repository.budget is not None
        self.repository, self.found, self.budget = repository, found, repository.budget
        traffic = TrafficControl(repository, lambda: 0.0, lambda job: job()())
        controls = SimpleNamespace(models=SimpleNamespace(), traffic=traffic, logs=SimpleNamespace())
        self.core = InferenceServer(Identity("naiad", "1"), repository, controls, SimpleNamespace(), True)

    def ask(self, name: str) -> Answer:
        answer = Answer()
        call = InferCall(name, inputs=[CallInput("X", "FP32", [1, 1], array=np.zeros(1, np.float32))])
        answer.handle = self.core.infer(call, answer)
        return answer

    async def error(self, name: str) -> InferenceServerError | None:
        """Ask and return how that ended, whether at once or later."""
        try:
            return await self.ask(name).end
        except InferenceServerError as error:
            return error

    def holding(self, name: str) -> Holding:
        (found,) = [holding for model, holding in self.budget.holdings() if model.plan.name == name]
        return found

    async def until_in(self, name: str, phase: Phase) -> None:
        await until(lambda: self.holding(name).phase is phase)

    def phases(self) -> list[str]:
        return [self.holding(name).phase.name for name in NAMES]


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    for _ in range(5000):
        if is_true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


Work = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Callable[..., None]:
    """Start the three models with `limit_mb`; each says in `declared` what it takes, "" when it doesn't."""
    SteeredBackend.reset()
    monkeypatch.setattr(manager, "resident_bytes", lambda _pid: SteeredBackend.held)

    def run_it(work: Work, limit_mb: int = 250, declared: tuple[str, ...] = ("100MB",) * 3) -> None:
        for name, declares in zip(NAMES, declared):
            more = f'parameters {{ key: "memory_bytes" value {{ string_value: "{declares}" }} }}' if declares else ""
            config = identity(tmp_path, name, more=more) / "config.pbtxt"
            config.write_text(config.read_text().replace('"identity"', '"steered"'))
        asyncio.run(main(work, limit_mb * MEGABYTE))
        assert SteeredBackend.open == []

    async def main(work: Work, limit_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        clock, pool = LoopClock(loop), ExecutionPools(4, loop)
        workers = SimpleNamespace(loop=loop, stop=lambda: None, give_up=lambda _: None, load_waits=LoadWaits())
        loader = Loader(BackendTable(own={"steered": SteeredBackend}), LoadSettings(True, {}), workers)
        runtime = Runtime(clock, pool, TurnBudget(clock.call_soon), True, workers)
        repository = RepositoryManager(loader, runtime, LoadRules(4), memory_limit_bytes=limit_bytes)
        scanned = scan([tmp_path], ())
        found = ScanResult({name: with_state(source) for name, source in scanned.sources.items()}, {})
        bench = Bench(repository, found)
        repository.announce(found)
        sources = [ScanResult({name: found.sources[name]}, {}) for name in NAMES]
        await bench.budget.start([(name, partial(load_found, repository, source)) for name, source in zip(NAMES, sources)])
        try:
            await work(bench)
        finally:
            SteeredBackend.gate.set()
            SteeredBackend.go.set()
            await repository.close()
            pool.close()

    return run_it


def test_only_so_many_requests_wait_for_a_model(run, monkeypatch):
    monkeypatch.setattr(keeper, "MAX_WAITING", 3)

    async def work(bench: Bench) -> None:
        SteeredBackend.gate.clear()
        waiting = [bench.ask("c") for _ in range(3)]
        with pytest.raises(InferenceServerError, match="is being loaded, and 3 requests wait for it already") as caught:
            bench.ask("c")
        assert caught.value.code is Code.UNAVAILABLE
        SteeredBackend.gate.set()
        assert [await answer.end for answer in waiting] == [None] * 3

    run(work)


def test_a_request_waits_for_busy_models_so_long_and_is_told_which(run, monkeypatch):
    monkeypatch.setattr(keeper, "ROOM_SECONDS", 0.03)

    async def work(bench: Bench) -> None:
        SteeredBackend.go.clear()
        busy = [bench.ask("a"), bench.ask("b")]
        error = await bench.error("c")
        assert error is not None
        assert error.code is Code.UNAVAILABLE
        assert "no room in memory within 0.03 s" in error.message
        assert error.message.endswith("these are busy: model 'a' version 1, model 'b' version 1")
        SteeredBackend.go.set()
        assert [await answer.end for answer in busy] == [None] * 2
        assert await bench.error("c") is None

    run(work)


def test_after_a_failure_requests_are_refused_for_a_while_and_cost_the_others_nothing(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.failure = "no weights"
        first = await bench.error("c")
        assert (first is not None and "no weights" in first.message) is True
        SteeredBackend.failure = ""
        assert await bench.error("a") is None
        evictions = [bench.holding(name).eviction_count for name in NAMES]
        again = await bench.error("c")
        assert (again is not None and "is tried again in a moment" in again.message) is True
        assert [bench.holding(name).eviction_count for name in NAMES] == evictions
        bench.holding("c").retry_at_s = 0
        assert await bench.error("c") is None
        assert bench.holding("c").failures == 0

    run(work)


def test_a_model_whose_resources_are_no_longer_to_be_had_answers_who_waits_and_leaves_nothing(run, monkeypatch):
    def refuse(_model, _copies):
        raise invalid_argument("resource 'R' is global elsewhere")

    async def work(bench: Bench) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Model, "resume", refuse)
            error = await bench.error("c")
        assert (error is not None and "resource 'R' is global elsewhere" in error.message) is True
        await until(lambda: "c" not in SteeredBackend.open)
        bench.holding("c").retry_at_s = 0
        assert await bench.error("c") is None

    run(work)


def test_a_model_unloaded_while_it_is_loaded_for_nobody_leaves_nothing(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.gate.clear()
        asked = bench.ask("c")
        await bench.until_in("c", Phase.LOADING)
        asked.handle.cancel()
        await asked.end
        await bench.repository.unload("c")
        await until(lambda: "c" not in {model.plan.name for model in bench.repository.all_models()})
        SteeredBackend.gate.set()
        await until(lambda: bench.budget.taken_bytes() == 100 * MEGABYTE)
        assert SteeredBackend.open == ["b"]

    run(work)


def test_a_model_unloaded_while_requests_wait_for_it_answers_them_first(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.gate.clear()
        asked = bench.ask("c")
        await bench.until_in("c", Phase.LOADING)
        await bench.repository.unload("c")
        SteeredBackend.gate.set()
        assert await asked.end is None
        await until(lambda: "c" not in SteeredBackend.open)

    run(work)


def test_a_load_of_what_is_available_brings_it_into_memory(run):
    async def work(bench: Bench) -> None:
        await bench.repository.load("c", lambda: bench.found.sources["c"])
        bench.repository.look_up("c", "")
        assert bench.phases() == ["PARKED", "RESIDENT", "RESIDENT"]

    run(work)


def test_who_waits_longest_gets_the_first_room(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.go.clear()
        asked = [bench.ask("a")]
        for name in ("c", "b"):
            asked.append(bench.ask(name))
            await bench.until_in(name, Phase.WAITING)
        SteeredBackend.go.set()
        assert [await answer.end for answer in asked] == [None] * 3
        assert SteeredBackend.loads == ["a", "c", "b"]

    run(work, limit_mb=150)


def test_a_stop_answers_who_waits_for_room(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.go.clear()
        busy = [bench.ask("a"), bench.ask("b")]
        waiting = bench.ask("c")
        await bench.until_in("c", Phase.WAITING)
        bench.repository.stop_loading()
        error = await waiting.end
        assert (error is not None and "the server is shutting down" in error.message) is True
        SteeredBackend.go.set()
        assert [await answer.end for answer in busy] == [None] * 2

    run(work)


def test_the_models_of_the_start_are_loaded_until_one_does_not_fit(run):
    async def work(bench: Bench) -> None:
        assert bench.phases() == ["RESIDENT", "PARKED", "PARKED"]
        assert [holding.eviction_count for _, holding in bench.budget.holdings()] == [0, 0, 0]
        assert [await bench.error(name) for name in ("c", "b")] == [None, None]

    run(work, declared=("100MB", "200MB", "50MB"))


def test_models_that_turn_out_larger_than_their_files_make_others_leave(run):
    async def work(bench: Bench) -> None:
        assert bench.phases() == ["RESIDENT"] * 3
        assert bench.budget.taken_bytes() == 240 * MEGABYTE

    SteeredBackend.grows = 80 * MEGABYTE
    run(work, declared=("",) * 3)


def test_a_start_that_measures_more_than_the_limit_lets_the_first_ones_go(run):
    async def work(bench: Bench) -> None:
        await bench.until_in("a", Phase.PARKED)
        assert bench.phases() == ["PARKED", "RESIDENT", "RESIDENT"]

    SteeredBackend.grows = 120 * MEGABYTE
    run(work, declared=("",) * 3)


def test_an_engine_s_model_is_measured_at_its_first_load_only(run):
    async def work(bench: Bench) -> None:
        SteeredBackend.grows = 200 * MEGABYTE
        for name in ("a", "b", "c"):
            assert await bench.error(name) is None
        assert [bench.holding(name).size_bytes // MEGABYTE for name in NAMES] == [120, 120, 120]

    SteeredBackend.grows = 120 * MEGABYTE
    run(work, declared=("",) * 3)


def test_models_that_grow_beyond_the_limit_while_they_serve_make_idle_ones_leave(run, monkeypatch):
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Holding, "read_workers", lambda _self, _now_s: False)

    async def work(bench: Bench) -> None:
        assert bench.phases() == ["RESIDENT"] * 3
        for name in NAMES:
            assert await bench.error(name) is None
        bench.holding("b").grown_bytes = 200 * MEGABYTE
        await bench.until_in("a", Phase.PARKED)
        assert bench.phases() == ["PARKED", "RESIDENT", "RESIDENT"]

    run(work, declared=("50MB", "", "60MB"), limit_mb=300)


def test_what_a_worker_has_grown_to_counts_until_it_leaves():
    model = SimpleNamespace(worker_memory=lambda: iter([("m_0", 500), ("m_1", 400)]))
    holding = Holding(SimpleNamespace(), 1, Need(None, 10), Phase.RESIDENT, model, fresh_bytes=300)
    assert holding.size_bytes == 300
    holding.read_workers(now_s=100.0)
    assert (holding.size_bytes, holding.taken_bytes) == (900, 900)
    holding.phase, holding.grown_bytes = Phase.PARKED, 0
    assert (holding.size_bytes, holding.taken_bytes) == (300, 0)


def test_the_pause_after_failures_doubles_up_to_a_minute():
    holding = Holding(SimpleNamespace(), 1, Need(None, 10))
    pauses = []
    for _ in range(8):
        holding.note_failure("no weights", now_s=0.0)
        pauses.append(holding.retry_at_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
