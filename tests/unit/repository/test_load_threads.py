"""Blocking work on threads: how many at once, and what takes long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from naiad.errors import InferenceServerError
from naiad.repository.load_threads import MOST_GIVEN_UP, LoadThreads, WorkGivenUpError, WorkTerms


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


def terms(model: str = "m", limit_s: float = 0, on_late=lambda _: None, on_long=lambda: None, on_given_up=lambda _: None):
    return WorkTerms(model, limit_s, on_long, on_given_up, on_late)


def test_work_that_hangs_is_given_up_and_what_it_returns_later_is_handed_over():
    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop())
        may_end, is_late, given_up, late = threading.Event(), asyncio.Event(), [], []

        def on_late(result: int) -> None:
            late.append(result)
            is_late.set()

        def work() -> int:
            may_end.wait(5)
            return threading.get_ident()

        with pytest.raises(WorkGivenUpError, match=r"^loading model 'm' has taken 0\.01 s \(--model-load-timeout-secs\)"):
            await threads.run("loading model 'm'", work, terms(limit_s=0.01, on_late=on_late, on_given_up=given_up.append))
        # Its thread is still at it, and doesn't hold others up.
        assert await threads.run("other work", lambda: 1) == 1
        assert late == []
        may_end.set()
        await is_late.wait()
        assert late == given_up
        threads.close()

    asyncio.run(main())


def test_so_much_work_that_was_given_up_still_hangs_that_no_other_is_begun():
    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop())
        may_end, all_ended, late = threading.Event(), asyncio.Event(), []

        def on_late(result: object) -> None:
            late.append(result)
            if len(late) == MOST_GIVEN_UP:
                all_ended.set()

        for _ in range(MOST_GIVEN_UP):
            with pytest.raises(WorkGivenUpError):
                await threads.run("work", lambda: may_end.wait(10), terms(limit_s=0.001, on_late=on_late))
        with pytest.raises(InferenceServerError, match="64 loads were given up and still hang") as caught:
            await threads.run("work", lambda: 1, terms())
        assert not isinstance(caught.value, WorkGivenUpError)
        # What belongs to no model that may hang isn't refused, and loads begin again when one has ended.
        assert await threads.run("closing", lambda: 2) == 2
        may_end.set()
        await all_ended.wait()
        assert await threads.run("work", lambda: 3, terms()) == 3
        threads.close()

    asyncio.run(main())


def test_work_that_waits_for_other_work_lets_it_begin():
    async def main() -> None:
        threads = LoadThreads(1, asyncio.get_running_loop())
        may_end = threading.Event()
        first = asyncio.ensure_future(threads.run("first", lambda: may_end.wait(5), terms("a")))
        second = asyncio.ensure_future(threads.run("second", may_end.set, terms("b")))
        await asyncio.sleep(0)
        threads.stop_counting("b")
        assert not may_end.is_set()
        threads.stop_counting("a")
        assert await first
        await second
        threads.close()

    asyncio.run(main())
