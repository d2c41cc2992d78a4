"""Worker processes of scripts, on a running loop; whatever a test does, nothing of them is left."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from event_loops import LOOPS, run_on_uvloop
from process_facts import facts
from scripted_worker import scripted_program

from naiad.execution.process.life.death import Death, WorkerIdentity
from naiad.execution.process.life.process import WorkerHooks, WorkerProcess
from naiad.execution.process.life.settings import WorkerSettings
from naiad.worker.frames import Frame

IDENTITY = WorkerIdentity("scripted", "1", "scripted_0_0")


class Worker:
    """A worker that is to be started: what its hooks were told stands in `frames`, `deaths` and `rooms`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frames: list[Frame] = []
        self.deaths: list[Death] = []
        self.rooms = 0
        self.died = asyncio.Event()
        self.process: WorkerProcess | None = None

    async def start(self, script: str = "serve()", **settings: Any) -> WorkerProcess:
        program = scripted_program(self.folder, script)
        hooks = WorkerHooks(self.on_frame, self.on_death, self.on_room)
        self.process = await WorkerProcess.start(program, replace(WorkerSettings(), **settings), IDENTITY, hooks)
        return self.process

    async def death(self) -> Death:
        await asyncio.wait_for(self.died.wait(), 10)
        return self.deaths[0]

    def on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def on_death(self, death: Death) -> None:
        self.deaths.append(death)
        self.died.set()

    def on_room(self) -> None:
        self.rooms += 1


Work = Callable[[Worker], Coroutine[Any, Any, None]]


@pytest.fixture
def with_worker(tmp_path) -> Callable[[Work], None]:
    """Run `work(worker)` on uvloop; afterwards no descriptor, child or thread of this process is left."""
    return runner(run_on_uvloop, tmp_path)


@pytest.fixture(params=LOOPS)
def with_worker_on_each_loop(request, tmp_path) -> Callable[[Work], None]:
    """As `with_worker`, on uvloop and on asyncio's own loop."""
    return runner(LOOPS[request.param], tmp_path)


def runner(run: Callable[[Coroutine[Any, Any, Any]], Any], folder: Path) -> Callable[[Work], None]:
    async def main(work: Work) -> None:
        worker = Worker(folder)
        gc.collect()  # What an earlier test left isn't counted.
        before = facts(os.getpid())
        try:
            await work(worker)
        finally:
            if worker.process is not None:
                await worker.process.stop(0)
        worker.process = None
        gc.collect()
        left = facts(os.getpid())
        # Fewer are fine: what other tests left may end meanwhile.
        assert left.descriptors <= before.descriptors
        assert left.children <= before.children
        assert left.threads <= before.threads

    return lambda work: run(main(work))
