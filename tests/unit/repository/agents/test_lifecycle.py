"""Agents hear how their load ends and when its model goes: each action once, in order, whatever another agent does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from model_folders import identity

from naiad.backends.table import BackendTable
from naiad.clock import LoopClock
from naiad.errors import InferenceServerError
from naiad.execution.placement import TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.load_waits import LoadWaits
from naiad.repository.agents.base import RepositoryAgent
from naiad.repository.agents.lifecycle import AgentLifecycle
from naiad.repository.agents.table import AgentTable
from naiad.repository.check.steps import CheckSettings, check_source
from naiad.repository.control.places import Places
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.loading.attempts import LoadRules
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Runtime

AGENTS = """model_repository_agents {
  agents { name: "told" parameters { key: "as" value: "first" } }
  agents { name: "told" parameters { key: "as" value: "second" } }
}
"""
LOADED = ["LOAD first", "LOAD second", "LOAD_COMPLETE second", "LOAD_COMPLETE first"]
UNLOADED = ["UNLOAD first", "UNLOAD second", "UNLOAD_COMPLETE second", "UNLOAD_COMPLETE first"]
FAILED = ["LOAD first", "LOAD second", "LOAD_FAIL second", "LOAD_FAIL first"]


class Told(RepositoryAgent):
    """Writes down what it hears; raises at the actions in `raising`."""

    heard: ClassVar[list[str]] = []
    raising: ClassVar[set[str]] = set()

    def _hear(self, action: str, model) -> None:
        assert model.name == "m"
        Told.heard.append(f"{action} {self.parameters['as']}")
        if Told.heard[-1] in Told.raising:
            raise SystemExit("enough")

    def load(self, model):
        self._hear("LOAD", model)

    def load_complete(self, model):
        self._hear("LOAD_COMPLETE", model)

    def load_fail(self, model):
        self._hear("LOAD_FAIL", model)

    def unload(self, model):
        self._hear("UNLOAD", model)

    def unload_complete(self, model):
        self._hear("UNLOAD_COMPLETE", model)


@pytest.fixture(autouse=True)
def heard() -> list[str]:
    Told.raising = set()
    Told.heard = []
    return Told.heard


class Bench:
    def __init__(self, repository: RepositoryManager, folder: Path) -> None:
        self.repository = repository
        self.places = Places([folder.parent], ())
        self.folder = folder

    async def load(self) -> None:
        await self.repository.load("m", lambda: self.places.find("m"))

    def write(self, more: str = "", versions: tuple[int, ...] = (1,)) -> None:
        identity(self.folder.parent, "m", more=AGENTS + more)
        for version in versions:
            (self.folder / str(version)).mkdir(exist_ok=True)


def run(tmp_path: Path, work: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock, pool = LoopClock(loop), ExecutionPools(1, loop)
        workers = SimpleNamespace(loop=loop, stop=lambda: None, load_waits=LoadWaits(), give_up=lambda _thread: None)
        loader = Loader(BackendTable(), LoadSettings(True, {}), workers, AgentTable({"told": Told}))
        repository = RepositoryManager(loader, Runtime(clock, pool, TurnBudget(clock.call_soon), True, workers), LoadRules())
        bench = Bench(repository, tmp_path / "models" / "m")
        bench.write()
        try:
            await work(bench)
        finally:
            await repository.close()
            pool.close()

    asyncio.run(main())


def test_a_load_and_an_unload_are_told_in_order(tmp_path, heard):
    async def work(bench: Bench) -> None:
        await bench.load()
        assert heard == LOADED
        await bench.repository.unload("m")

    run(tmp_path, work)
    assert heard == LOADED + UNLOADED


def test_several_versions_are_one_load(tmp_path, heard):
    async def work(bench: Bench) -> None:
        bench.write("version_policy { all {} }", versions=(1, 2, 3))
        await bench.load()

    run(tmp_path, work)
    assert heard == LOADED + UNLOADED


def test_a_reload_is_a_load_of_its_own_and_ends_the_one_before(tmp_path, heard):
    async def work(bench: Bench) -> None:
        await bench.load()
        bench.write('parameters { key: "a" value { string_value: "b" } }')
        await bench.load()

    run(tmp_path, work)
    assert sorted(heard) == sorted((LOADED + UNLOADED) * 2)
    assert heard[:6] == LOADED + LOADED[:2]


def test_what_can_not_be_prepared_has_failed(tmp_path, heard):
    async def work(bench: Bench) -> None:
        bench.write("version_policy { specific { versions: [ 9 ] } }")
        with pytest.raises(InferenceServerError, match="at least one version"):
            await bench.load()

    run(tmp_path, work)
    assert heard == FAILED


def test_what_can_not_be_loaded_has_failed_and_a_failed_reload_leaves_the_old_one(tmp_path, heard):
    async def work(bench: Bench) -> None:
        await bench.load()
        bench.write('parameters { key: "naiad_placement" value { string_value: "nowhere" } }')
        with pytest.raises(InferenceServerError, match="nowhere"):
            await bench.load()
        assert heard == LOADED + FAILED

    run(tmp_path, work)
    assert heard == LOADED + FAILED + UNLOADED


def test_the_agents_that_have_looked_at_a_model_hear_that_another_has_refused_it(tmp_path, heard):
    async def work(bench: Bench) -> None:
        Told.raising.add("LOAD second")
        with pytest.raises(InferenceServerError, match="repository agent 'told': SystemExit: enough"):
            await bench.load()

    run(tmp_path, work)
    assert heard == FAILED


def test_what_agents_raise_after_the_load_is_logged_and_changes_nothing(tmp_path, heard, caplog):
    async def work(bench: Bench) -> None:
        Told.raising.update((*LOADED[2:], *UNLOADED))
        await bench.load()
        assert bench.repository.find("m", "").plan.version == 1
        await bench.repository.unload("m")

    with caplog.at_level(logging.ERROR):
        run(tmp_path, work)
    assert heard == LOADED + UNLOADED
    said = [record.getMessage() for record in caplog.records if "repository agent 'told' failed at" in record.getMessage()]
    assert len(said) == 6
    assert said[0] == "repository agent 'told' failed at LOAD_COMPLETE: SystemExit: enough"


def test_a_change_of_instance_counts_ends_with_the_load_before(tmp_path, heard):
    async def work(bench: Bench) -> None:
        bench.write("instance_group { count: 1 kind: KIND_CPU }")
        await bench.load()
        first = bench.repository.find("m", "")
        bench.write("instance_group { count: 2 kind: KIND_CPU }")
        await bench.load()
        assert bench.repository.find("m", "") is first
        assert heard == LOADED * 2

    run(tmp_path, work)
    assert sorted(heard) == sorted((LOADED + UNLOADED) * 2)


def test_a_check_is_no_load(tmp_path, heard, monkeypatch):
    monkeypatch.setattr("naiad.repository.agents.table._BUILT_IN", {"told": Told})
    identity(tmp_path, "m", more=AGENTS)
    checked = check_source(Places([tmp_path], ()).find("m"), CheckSettings(BackendTable(), LoadSettings(True, {})))
    assert checked.errors == []
    assert heard == FAILED


def test_each_action_comes_once_and_an_unload_makes_up_for_what_is_missing(heard):
    agents = AgentLifecycle([("told", Told({"as": "first"}), SimpleNamespace(name="m"))])
    agents.unload_complete()
    for again in (agents.load_complete, agents.unload, agents.load_fail, agents.unload_complete):
        again()
    assert heard == ["LOAD_COMPLETE first", "UNLOAD first", "UNLOAD_COMPLETE first"]
