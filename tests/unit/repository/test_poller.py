"""When the poller looks, and what it does with what it sees."""

from __future__ import annotations

import asyncio
import itertools

from naiad.errors import unavailable
from naiad.repository.control.poller import Poller, PollHooks
from naiad.repository.tree import TreeState

A, B, C = (TreeState(name, name) for name in "abc")


class Repositories:
    """`looks` are what each look sees, the last one for ever; `done` is what was to be done, in order."""

    def __init__(self, *looks):
        self.looks = list(looks)
        self.done: list[str] = []
        self.kinds: list[bool] = []

    def poller(self, interval_s=1000.0, settle_s=0.001, **tried) -> Poller:
        hooks = PollHooks(
            self.look, lambda name: self.done.append(f"load {name}"), lambda name: self.done.append(f"unload {name}")
        )
        poller = Poller(hooks, interval_s, settle_s)
        poller.tried = tried
        return poller

    async def look(self, is_regular):
        self.kinds.append(is_regular)
        seen = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(seen, Exception):
            raise seen
        return seen


async def until(is_true) -> None:
    end = asyncio.get_running_loop().time() + 5
    while not is_true():
        assert asyncio.get_running_loop().time() < end, "it did not come true"
        await asyncio.sleep(0)


def run(poller, *steps) -> None:
    async def main():
        await poller.look_once(is_regular=False)
        task = asyncio.get_running_loop().create_task(poller.run())
        try:
            for step in steps:
                await until(step)
        finally:
            task.cancel()

    asyncio.run(main())


def test_a_change_that_is_heard_of_is_loaded_when_it_has_settled_long_before_the_next_regular_look():
    repositories = Repositories({"m": A}, {"m": B}, {"m": C})
    poller = repositories.poller(m=A)
    run(poller, lambda: len(repositories.kinds) == 1, lambda: poller.wake() or repositories.done == ["load m"])
    assert repositories.kinds[:4] == [False, False, False, False]
    assert poller.tried == {"m": C}


def test_without_a_word_only_regular_looks_come():
    repositories = Repositories({"m": A})
    run(repositories.poller(interval_s=0.001, m=A), lambda: len(repositories.kinds) > 5)
    assert (all(repositories.kinds[1:]), repositories.done) == (True, [])


def test_what_is_gone_at_the_first_look_waits_for_a_second():
    repositories = Repositories({}, {})
    poller = repositories.poller(m=A)

    async def main():
        await poller.look_once(is_regular=True)
        assert repositories.done == []
        await poller.look_once(is_regular=True)

    asyncio.run(main())
    assert repositories.done == ["unload m"]


def test_a_look_that_fails_changes_nothing_and_is_said_once(caplog):
    repositories = Repositories({"m": A}, unavailable("gone"), unavailable("gone"), {"m": B}, {"m": B})
    poller = repositories.poller(m=A)

    async def main():
        for _ in range(5):
            await poller.look_once(is_regular=True)

    asyncio.run(main())
    assert repositories.done == ["load m"]
    assert len(caplog.records) == 1


def test_what_never_settles_is_looked_at_ever_more_seldom():
    times: list[float] = []

    class Changing(Repositories):
        async def look(self, is_regular):
            times.append(asyncio.get_running_loop().time())
            return {"m": TreeState("", str(len(times)))}

    repositories = Changing()
    run(repositories.poller(settle_s=0.005), lambda: len(times) == 36)
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert all(wait >= 0.0049 * max(1, number - 29) for number, wait in enumerate(waits))
    assert repositories.done == []


def test_a_fault_in_a_look_is_said_and_the_next_one_comes(caplog):
    repositories = Repositories({"m": A}, ZeroDivisionError(), {"m": B})
    poller = repositories.poller(interval_s=0.01, m=A)
    run(poller, lambda: "load m" in repositories.done)
    assert "ZeroDivisionError" in caplog.text
