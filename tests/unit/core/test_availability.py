"""A model that can't serve for a time: who says so, what still answers, and that everything returns. And what idle means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from loading import load_found
from model_folders import identity
from plans import plan

from naiad.backends.table import BackendTable
from naiad.clock import LoopClock
from naiad.core.classification import ClassifyingSink
from naiad.core.server import Controls, Identity, InferenceServer
from naiad.core.traffic.control import TrafficControl
from naiad.errors import Code, InferenceServerError
from naiad.execution.placement import TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.load_waits import LoadWaits
from naiad.repository.control.control import ControlSettings, ModelControl
from naiad.repository.control.places import Places
from naiad.repository.layout import scan
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.loading.attempts import LoadRules
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Model, Runtime
from naiad.request.call import CallInput, InferCall

REASON = "no worker is up: the last one exited with 3"
DECOUPLED = "model_transaction_policy { decoupled: true }"


class Sink:
    def __init__(self) -> None:
        self.responses: list[object] = []
        self.error: InferenceServerError | None = None
        self.ended = asyncio.Event()

    def send(self, response, is_final):
        self.responses.append(response)
        if is_final:
            self.ended.set()

    def fail(self, error):
        self.error = error
        self.ended.set()

    def when_writable(self, callback):
        return True


def controls_of(repository: RepositoryManager) -> Controls:
    models = ModelControl(repository, Places((), ()), ControlSettings(), asyncio.get_running_loop())
    return Controls(models, TrafficControl(repository, lambda: 0.0, lambda job: job()()), SimpleNamespace())


class Bench:
    """A core over a repository of identity models `echo` and `other`, without sockets."""

    def __init__(self, is_strict: bool, repository: RepositoryManager) -> None:
        self.repository = repository
        self.core = InferenceServer(Identity("naiad", "1"), repository, controls_of(repository), SimpleNamespace(), is_strict)
        self.core.mark_loaded()

    @property
    def model(self) -> Model:
        return self.repository.look_up("echo", "")

    def begin(self, *, many: bool = False) -> Sink:
        sink = Sink()
        data = np.zeros(1, np.float32)
        call = InferCall("echo", inputs=[CallInput("X", "FP32", [1, 1], array=data)], takes_many_responses=many)
        self.core.infer(call, sink)
        return sink


def new_repository(loop: asyncio.AbstractEventLoop) -> tuple[RepositoryManager, ExecutionPools]:
    clock, pool = LoopClock(loop), ExecutionPools(1, loop)
    workers = SimpleNamespace(loop=loop, stop=lambda: None, give_up=lambda _: None, load_waits=LoadWaits())
    loader = Loader(BackendTable(), LoadSettings(True, {}), workers)
    return RepositoryManager(loader, Runtime(clock, pool, TurnBudget(clock.call_soon), True, workers), LoadRules()), pool


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def run_it(work: Callable[[Bench], Awaitable[None]], more: str = "", is_strict: bool = True) -> None:
        async def main() -> None:
            identity(tmp_path, more=more)
            identity(tmp_path, "other")
            repository, pool = new_repository(asyncio.get_running_loop())
            bench = Bench(is_strict, repository)
            found = scan([tmp_path], ())
            repository.announce(found)
            await load_found(repository, found)
            try:
                await work(bench)
            finally:
                await repository.close()
                pool.close()

        asyncio.run(main())

    return run_it


def error_of(ask: Callable[[], object]) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_model_that_can_not_serve_refuses_with_its_reason_until_it_can_again(run, is_strict):
    async def work(bench):
        await bench.begin().ended.wait()
        bench.model.set_unready(REASON)
        error = error_of(bench.begin)
        assert (error.code, error.message) == (Code.UNAVAILABLE, f"model 'echo' version 1 is not ready: {REASON}")
        with pytest.raises(InferenceServerError, match="is not ready"):
            await bench.core.is_model_ready("echo", "")
        assert bench.core.is_ready() is not is_strict
        bench.model.set_unready("")
        sink = bench.begin()
        await sink.ended.wait()
        assert len(sink.responses) == 1
        assert await bench.core.is_model_ready("echo", "1")
        assert bench.core.is_ready()

    run(work, is_strict=is_strict)


def test_other_models_serve_meanwhile_and_the_model_still_says_what_it_is(run):
    async def work(bench):
        bench.model.set_unready(REASON)
        core = bench.core
        assert await core.is_model_ready("other", "")
        assert core.model_metadata("echo", "").versions == ("1",)
        assert core.model_config("echo", "1")["name"] == "echo"
        assert [stats["name"] for stats in await core.statistics("", "")] == ["echo", "other"]
        lines = {entry.name: (entry.state, entry.reason) for entry in await core.repository_index(is_ready_only=True)}
        assert lines == {"echo": ("READY", REASON), "other": ("READY", "")}

    run(work)


def test_who_asked_to_be_told_hears_of_every_change_of_readiness(run):
    async def work(bench):
        core, heard = bench.core, []
        core.on_change(lambda: heard.append((core.is_ready(), core.is_model_serving("echo"))))
        changes = [
            (lambda: bench.model.set_unready(REASON), (False, False)),
            (lambda: bench.model.set_unready(""), (True, True)),
            (core.mark_not_ready, (False, False)),
            (core.begin_drain, (False, False)),
        ]
        for change, wanted in changes:
            heard.clear()
            change()
            assert heard == [wanted]
        await bench.repository.close()
        assert heard[-1] == (False, False)
        assert len(heard) > 1

    run(work)


def test_loading_is_told_from_the_first_model_to_the_whole_server(tmp_path):
    identity(tmp_path)

    async def main() -> None:
        repository, pool = new_repository(asyncio.get_running_loop())
        core = InferenceServer(Identity("naiad", "1"), repository, controls_of(repository), SimpleNamespace(), True)
        heard: list[object] = []
        core.on_change(lambda: heard.append((core.is_ready(), core.is_model_serving("echo"))))
        found = scan([tmp_path], ())
        assert core.is_model_serving("echo") is None
        repository.announce(found)
        assert core.is_model_serving("echo") is False
        await load_found(repository, found)
        core.mark_loaded()
        assert [heard[0], heard[-1]] == [(False, True), (True, True)]
        await repository.close()
        pool.close()

    asyncio.run(main())


def test_a_model_is_asked_itself_whether_it_is_ready(run):
    async def work(bench):
        answers = iter([True, False])

        async def check_ready() -> bool:
            return next(answers)

        for instance in bench.model._instances:
            instance.check_ready = check_ready
        assert await bench.core.is_model_ready("echo", "")
        assert not await bench.core.is_model_ready("echo", "")

    run(work)


def test_a_call_that_takes_one_response_is_refused_by_a_decoupled_model(run):
    async def work(bench):
        error = error_of(bench.begin)
        assert (error.code, error.message) == (
            Code.UNIMPLEMENTED,
            "model 'echo' is decoupled, it may give any number of responses: this call takes exactly one",
        )
        assert bench.model.statistics.failure_count == 0
        sink = bench.begin(many=True)
        await sink.ended.wait()
        assert sink.error is None

    run(work, more=DECOUPLED)


class OpenRequests:
    """Gives the only instance of a model requests that are open after their batch, as decoupled ones are."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        [self.instance] = model._instances
        self.count = 1
        monkeypatch.setattr(type(self.instance), "open_count", property(self._count_of))

    def _count_of(self, instance: object) -> int:
        return self.count if instance is self.instance else 0

    def end(self) -> None:
        self.count = 0
        self.instance.on_open_zero()


def test_a_model_is_idle_when_no_answer_is_to_come_any_more(run, monkeypatch):
    async def work(bench):
        requests, calls = OpenRequests(bench.model, monkeypatch), []
        assert bench.model.running_count() == 1
        bench.model.on_idle(lambda: calls.append("model"))
        bench.core.on_idle(lambda: calls.append("core"))
        draining = asyncio.ensure_future(bench.model.drain())
        requests.instance.on_open_zero()
        await asyncio.sleep(0)
        assert (calls, draining.done()) == ([], False)
        requests.end()
        await draining
        assert sorted(calls) == ["core", "model"]
        assert bench.model.running_count() == 0
        requests.end()
        assert len(calls) == 2

    run(work)


def test_a_request_that_comes_while_others_are_open_is_waited_for_too(run, monkeypatch):
    async def work(bench):
        requests, calls = OpenRequests(bench.model, monkeypatch), []
        bench.model.on_idle(lambda: calls.append("idle"))
        sink = bench.begin()
        requests.end()
        assert calls == []
        await sink.ended.wait()
        await asyncio.sleep(0)
        assert calls == ["idle"]

    run(work)


def test_a_client_that_wants_classes_sets_the_pace_too():
    sink = Sink()
    asked = []
    sink.when_writable = lambda callback: asked.append(callback) or False

    def callback():
        pass

    assert not ClassifyingSink(sink, plan([], []), {"Y": 1}).when_writable(callback)
    assert asked == [callback]


def test_a_passive_instance_that_goes_and_comes_back_changes_nothing(run):
    async def work(bench):
        active, passive = bench.model._instances
        passive.submit = None
        bench.model.on_down(passive, REASON, is_lasting=True)
        assert bench.model.unready_reason == ""
        bench.model.on_up(passive)
        sinks = [bench.begin() for _ in range(3)]
        for sink in sinks:
            await sink.ended.wait()
        bench.model.on_down(active, REASON, is_lasting=True)
        assert bench.model.unready_reason == REASON
        bench.model.on_up(active)
        assert bench.model.unready_reason == ""

    run(work, more="instance_group [{ count: 1 kind: KIND_CPU }, { count: 1 kind: KIND_CPU passive: true }]")
