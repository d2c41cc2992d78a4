"""What a load that fails gives back."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from loading import load_found
from model_folders import identity

from naiad.backends.identity.backend import IdentityBackend
from naiad.backends.table import BackendTable
from naiad.clock import LoopClock
from naiad.execution.placement import TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.load_waits import LoadWaits
from naiad.repository.layout import scan
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.loading.attempts import LoadRules
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Runtime

WRONG = 'instance_group { count: 2 } parameters { key: "naiad_placement" value { string_value: "nowhere" } }'


class CountedBackend(IdentityBackend):
    """The identity, whose copies are counted: those that were loaded and not closed."""

    name = "counted"
    open_count: ClassVar[int] = 0

    @classmethod
    def load(cls, plan, instance, files):
        cls.open_count += 1

        def close() -> None:
            cls.open_count -= 1

        loaded = super().load(plan, instance, files)
        return SimpleNamespace(execute=loaded.execute, close=close)


def test_a_model_that_is_loaded_and_can_not_be_put_to_work_gives_its_copies_back(tmp_path: Path):
    identity(tmp_path, more=WRONG)
    config = tmp_path / "echo" / "config.pbtxt"
    config.write_text(config.read_text().replace('"identity"', '"counted"'))

    async def main() -> list[tuple[str, str]]:
        loop = asyncio.get_running_loop()
        clock, pool = LoopClock(loop), ExecutionPools(1, loop)
        workers = SimpleNamespace(loop=loop, stop=lambda: None, give_up=lambda _: None, load_waits=LoadWaits())
        loader = Loader(BackendTable(own={"counted": CountedBackend}), LoadSettings(True, {}), workers)
        repository = RepositoryManager(loader, Runtime(clock, pool, TurnBudget(clock.call_soon), True, workers), LoadRules())
        found = scan((tmp_path,), ())
        repository.announce(found)
        await load_found(repository, found)
        failures = repository.failures()
        await repository.close()
        pool.close()
        return failures

    [(name, reason)] = asyncio.run(main())
    assert name == "echo"
    assert "'naiad_placement' is 'nowhere'" in reason
    assert CountedBackend.open_count == 0


def test_a_load_that_takes_long_says_since_when_in_the_index(tmp_path: Path):
    identity(tmp_path)
    config = tmp_path / "echo" / "config.pbtxt"
    config.write_text(config.read_text().replace('"identity"', '"held"'))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock, pool = LoopClock(loop), ExecutionPools(1, loop)
        workers = SimpleNamespace(loop=loop, stop=lambda: None, give_up=lambda _: None, load_waits=LoadWaits())
        loader = Loader(BackendTable(own={"held": HeldBackend}), LoadSettings(True, {}), workers)
        runtime = Runtime(clock, pool, TurnBudget(clock.call_soon), True, workers)
        repository = RepositoryManager(loader, runtime, LoadRules(long_s=0.05))
        found = scan((tmp_path,), ())
        repository.announce(found)
        load = asyncio.ensure_future(load_found(repository, found))
        while not (lines := [line for line in repository.index(is_ready_only=False) if line.reason]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert [(line.version, line.state) for line in lines] == [("1", "LOADING")]
        assert re.fullmatch(r"loading since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[0].reason)
        HeldBackend.may_load.set()
        await load
        assert [(line.state, line.reason) for line in repository.index(is_ready_only=False)] == [("READY", "")]
        await repository.close()
        pool.close()

    asyncio.run(main())


class HeldBackend(IdentityBackend):
    """The identity, which isn't loaded before it may be."""

    name = "held"
    may_load: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def load(cls, plan, instance, files):
        cls.may_load.wait(10)
        return super().load(plan, instance, files)
