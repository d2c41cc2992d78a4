"""Batches borrow threads from a bounded pool; completions come back on the loop thread."""

import asyncio
import logging
import threading

import pytest

from naiad.execution.threads import ThreadPool


async def run_jobs(pool: ThreadPool, jobs: list) -> list:
    """Submit `jobs` and return (result, thread of the job, thread of the completion) of each, in order of their ends."""
    loop = asyncio.get_running_loop()
    results: list = []
    done = loop.create_future()

    def wrap(job):
        def run():
            result, thread = job(), threading.current_thread()

            def finish():
                results.append((result, thread, threading.current_thread()))
                if len(results) == len(jobs):
                    done.set_result(None)

            return finish

        return run

    for job in jobs:
        pool.submit(wrap(job))
    await done
    return results


def test_jobs_run_on_threads_and_end_on_the_loop():
    async def main():
        pool = ThreadPool(2, asyncio.get_running_loop())
        results = await run_jobs(pool, [lambda value=value: value for value in range(100)])
        pool.close()
        return results

    results = asyncio.run(main())
    assert sorted(result for result, _, _ in results) == list(range(100))
    assert {finish for _, _, finish in results} == {threading.main_thread()}
    assert threading.main_thread() not in {thread for _, thread, _ in results}


def test_the_pool_never_has_more_threads_than_its_limit_and_no_more_than_it_needs():
    async def main():
        pool = ThreadPool(3, asyncio.get_running_loop())
        await run_jobs(pool, [lambda: None])
        await run_jobs(pool, [lambda: None])
        one = len(pool._threads)
        barrier = threading.Barrier(3)
        await run_jobs(pool, [barrier.wait] * 3 + [lambda: None] * 20)
        pool.close()
        return one, len(pool._threads)

    assert asyncio.run(main()) == (1, 3)


def test_jobs_beyond_the_limit_wait_and_are_counted():
    async def main():
        pool = ThreadPool(1, asyncio.get_running_loop())
        gate = threading.Event()
        pending = asyncio.ensure_future(run_jobs(pool, [gate.wait, lambda: None, lambda: None]))
        await asyncio.sleep(0)
        queued = pool.queued_count()
        gate.set()
        await pending
        pool.close()
        return queued, pool.queued_count()

    assert asyncio.run(main()) == (2, 0)


def test_a_job_that_raises_is_logged_and_costs_no_thread(caplog: pytest.LogCaptureFixture):
    async def main():
        pool = ThreadPool(1, asyncio.get_running_loop())

        def broken():
            raise RuntimeError("boom")

        pool.submit(broken)
        results = await run_jobs(pool, [lambda: 7])
        pool.close()
        return results[0][0]

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(main()) == 7
    assert "boom" in caplog.text
