"""Growth of the process counts as a model's only when nothing else was loaded meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from naiad.repository.budget.meter import GrowthMeter


class Process:
    """A process whose size the test sets; `held` is None where that can't be known."""

    def __init__(self) -> None:
        self.held: int | None = 100
        self.free = 0
        self.meter = GrowthMeter(lambda: self.held, self.give_back)

    async def give_back(self) -> None:
        if self.held is not None:
            self.held -= self.free
        self.free = 0

    async def load(self, grows: int, until: asyncio.Event | None = None) -> str:
        if until is not None:
            await until.wait()
        if self.held is not None:
            self.held += grows
        return "copies"


@pytest.mark.parametrize(("grows", "expected"), [(30, 30), (0, 0), (-5, 0)])
def test_a_load_alone_takes_what_the_process_grows_by(grows, expected):
    process = Process()
    assert asyncio.run(process.meter.measure(lambda: process.load(grows))) == ("copies", expected)


def test_what_is_free_before_a_load_and_after_it_does_not_count():
    async def run() -> int:
        process = Process()
        process.free = 40

        async def load() -> None:
            await process.load(50)
            process.free = 20

        return (await process.meter.measure(load))[1]

    assert asyncio.run(run()) == 30


def test_loads_that_overlap_are_not_told_apart_and_the_next_one_alone_is_measured():
    async def run() -> list[tuple[str, int]]:
        process, gate = Process(), asyncio.Event()
        long = asyncio.create_task(process.meter.measure(lambda: process.load(30, gate)))
        await asyncio.sleep(0)
        short = await process.meter.measure(lambda: process.load(10))
        gate.set()
        return [await long, short, await process.meter.measure(lambda: process.load(5))]

    assert [growth for _, growth in asyncio.run(run())] == [0, 0, 5]


def test_a_load_that_fails_raises_and_disturbs_no_later_measure():
    async def fail() -> str:
        raise RuntimeError("no weights")

    async def run() -> int:
        process = Process()
        with pytest.raises(RuntimeError, match="no weights"):
            await process.meter.measure(fail)
        return (await process.meter.measure(lambda: process.load(7)))[1]

    assert asyncio.run(run()) == 7


def test_where_memory_cannot_be_read_nothing_is_measured():
    process = Process()
    process.held = None
    assert asyncio.run(process.meter.measure(lambda: process.load(30))) == ("copies", 0)
