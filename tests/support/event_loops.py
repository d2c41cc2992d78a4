"""Running a coroutine on each kind of loop that a server may run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop


def run_on_asyncio(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def run_on_uvloop(work: Coroutine[Any, Any, Any]) -> Any:
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


LOOPS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {"asyncio": run_on_asyncio, "uvloop": run_on_uvloop}


async def until(is_true: Callable[[], object], timeout_s: float = 10, what: str = "the condition") -> None:
    """Return as soon as `is_true()` is, letting the loop run meanwhile; fail after `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not is_true():
        assert loop.time() < deadline, f"{what} did not come true within {timeout_s} s"
        await asyncio.sleep(0.002)
