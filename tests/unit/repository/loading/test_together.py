"""Work for many at once: nobody is told of a round that began before they asked."""

from __future__ import annotations

import asyncio

import pytest

from naiad.repository.loading.together import Together


def test_all_who_ask_while_a_round_goes_on_share_the_next_one():
    async def main() -> None:
        begun, may_end = [], asyncio.Event()

        async def work() -> None:
            begun.append(len(begun))
            await may_end.wait()

        together = Together(work, asyncio.get_running_loop())
        first = asyncio.ensure_future(together.run())
        while not begun:  # noqa: ASYNC110 - one turn of the loop
            await asyncio.sleep(0)
        others = [asyncio.ensure_future(together.run()) for _ in range(100)]
        await asyncio.sleep(0)
        assert begun == [0]
        may_end.set()
        await asyncio.gather(first, *others)
        assert begun == [0, 1]
        await together.run()
        assert begun == [0, 1, 2]

    asyncio.run(main())


def test_a_round_that_fails_is_told_to_those_who_asked_for_it_only():
    async def main() -> None:
        failures = [ZeroDivisionError()]

        async def work() -> None:
            if failures:
                raise failures.pop()

        together = Together(work, asyncio.get_running_loop())
        with pytest.raises(ZeroDivisionError):
            await together.run()
        await together.run()

    asyncio.run(main())
