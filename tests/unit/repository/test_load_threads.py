"""Blocking work on threads: how many at once, and what takes long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from naiad.repository.load_threads import LoadThreads


def test_no_more_than_the_limit_work_at_once_and_threads_are_used_again():
    async def main() -> None:
        threads = LoadThreads(2, asyncio.get_running_loop())
        running, most, used = 0, 0, set()
        lock, both = threading.Lock(), threading.Barrier(2)

        def work() -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                used.add(threading.get_ident())
            both.wait(5)
            with lock:
                running -= 1
            return 7

        assert await asyncio.gather(*(threads.run("work", work) for _ in range(6))) == [7] * 6
        assert (most, len(used)) == (2, 2)
        threads.close()

    asyncio.run(main())


def test_work_that_takes_long_keeps_nobody_waiting():
    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop(), long_s=0.01)
        may_end = threading.Event()
        long = asyncio.ensure_future(threads.run("long work", lambda: may_end.wait(5)))
        assert await threads.run("other work", lambda: 1) == 1
        assert not long.done()
        may_end.set()
        assert await long
        threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_what_work_raises_is_raised_to_who_waits_and_the_thread_goes_on(error):
    def fail() -> None:
        raise error

    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop())
        with pytest.raises((ValueError, RuntimeError)):
            await threads.run("work", fail)
        assert await threads.run("work", lambda: 2) == 2
        threads.close()

    asyncio.run(main())


def test_a_caller_that_is_cancelled_leaves_the_rest_in_order():
    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop())
        may_end, ran = threading.Event(), []
        first = asyncio.ensure_future(threads.run("first", lambda: may_end.wait(5)))
        waiting = asyncio.ensure_future(threads.run("second", lambda: ran.append(2)))
        await asyncio.sleep(0)
        first.cancel()
        waiting.cancel()
        may_end.set()
        assert await threads.run("third", lambda: 3) == 3
        assert ran == []
        threads.close()

    asyncio.run(main())
