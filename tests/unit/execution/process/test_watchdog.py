"""The limit on one call of `execute` holds for the batch that runs, however many ran before."""

from __future__ import annotations

import asyncio

import pytest
from event_loops import run_on_asyncio, until
from fake_execution import Probe

from naiad.execution.process.context import WorkerLimits
from naiad.execution.process.watchdog import OVERRIDE_PARAMETER, Watchdog

LONG_S = 3600.0


def requests(*wishes):
    """Return a batch of requests, each with its own wish for a limit, or none."""
    made = []
    for wish in wishes:
        request = Probe().request
        request.parameters = {} if wish is None else {OVERRIDE_PARAMETER: wish}
        made.append(request)
    return made


def watched(work, limit_s: float, *, allows_override: bool = False) -> list[float]:
    """Return the limits that were passed while `work(watchdog, hangs)` ran."""
    hangs: list[float] = []

    async def run() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), WorkerLimits(limit_s, allows_override), hangs.append)
        await work(watchdog, hangs)
        watchdog.close()

    run_on_asyncio(run())
    return hangs


def test_a_batch_over_the_limit_is_told_once():
    async def work(watchdog, hangs):
        watchdog.start(requests(None))
        await until(lambda: hangs)
        await asyncio.sleep(0)

    assert watched(work, 0.01) == [0.01]


def test_a_batch_that_ends_in_time_and_a_closed_watchdog_are_not_told():
    async def work(watchdog, hangs):
        watchdog.start(requests(None))
        watchdog.stop()
        await asyncio.sleep(0.02)
        watchdog.start(requests(None))
        watchdog.close()
        await asyncio.sleep(0.02)

    assert watched(work, 0.01) == []


def test_the_timer_of_a_batch_that_ended_does_not_end_the_next_one_early():
    async def work(watchdog, hangs):
        began = asyncio.get_running_loop().time()
        watchdog.start(requests(10))
        watchdog.start(requests(60))
        await until(lambda: hangs)
        assert asyncio.get_running_loop().time() - began >= 0.06

    assert watched(work, LONG_S, allows_override=True) == [0.06]


def test_a_shorter_limit_after_a_longer_one_is_kept():
    async def work(watchdog, hangs):
        watchdog.start(requests(None))
        watchdog.start(requests(10))
        await until(lambda: hangs)

    assert watched(work, LONG_S, allows_override=True) == [0.01]


@pytest.mark.parametrize(
    ("wishes", "limit_s", "expected"),
    [
        ((None,), 2.0, 2.0),
        ((500, 700), 2.0, 0.5),
        ((5000,), 2.0, 2.0),
        ((700,), 0.0, 0.7),
        ((True,), 2.0, 2.0),
        ((0, -5, "7"), 2.0, 2.0),
        ((None,), 0.0, 0.0),
    ],
)
def test_a_request_may_shorten_the_limit_where_that_is_allowed(wishes, limit_s, expected):
    async def work(watchdog, hangs):
        assert watchdog._limit_of(requests(*wishes)) == expected

    watched(work, limit_s, allows_override=True)


def test_a_request_may_not_change_the_limit_elsewhere():
    async def work(watchdog, hangs):
        assert watchdog._limit_of(requests(1)) == LONG_S

    watched(work, LONG_S)
