"""An event loop that notes how long each of its steps computes, in a server that runs in the test's process.

Counted is the CPU time of the loop's thread, so that a busy machine changes nothing; what waits without computing isn't seen.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Steps:
    """The longest steps so far: CPU milliseconds, and what ran."""

    def __init__(self) -> None:
        self.all: list[tuple[float, str]] = []

    def over(self, limit_ms: float) -> list[str]:
        return [f"{spent_ms:.1f} ms: {what}" for spent_ms, what in sorted(self.all, reverse=True) if spent_ms > limit_ms]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Let servers of this process have a loop that is watched, without the garbage collector, whose heap is the tests'."""
    steps = Steps()
    run = asyncio.Handle._run
    loops: list[asyncio.AbstractEventLoop] = []

    def new_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.SelectorEventLoop())
        return loops[-1]

    def run_watched(self: Any) -> None:
        began = time.thread_time()
        run(self)
        if self._loop in loops:
            steps.all.append(((time.thread_time() - began) * 1000, repr(self)))

    monkeypatch.setattr("naiad.server.embedded.background.new_loop", new_loop)
    monkeypatch.setattr(asyncio.Handle, "_run", run_watched)
    gc.disable()
    try:
        yield steps
    finally:
        gc.enable()
