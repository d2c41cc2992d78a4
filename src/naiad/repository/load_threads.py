"""Threads for blocking work on models: reading repositories, loading, closing.

Owns how many work at once, and that work which takes long, or hangs, doesn't keep others waiting. Work goes to the thread that
was last used, as each thread has memory of its own that it keeps. The process doesn't wait for them when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

# Work that has taken this long no longer counts: another one may begin.
LONG_SECONDS = 60.0

_log = logging.getLogger("naiad.repository")


class _Job:
    __slots__ = ("future", "is_counted", "thread", "timer", "what", "work")

    def __init__(self, what: str, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.what = what
        self.work = work
        self.future = future
        self.is_counted = False
        self.timer: asyncio.TimerHandle | None = None
        self.thread: _Jobs | None = None


_Jobs = SimpleQueue[_Job | None]
"""What a thread is to do, and by which it is known."""


class LoadThreads:
    """At most `limit` pieces of work at once, but for those that take over `long_s` seconds. Loop thread only."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, long_s: float = LONG_SECONDS) -> None:
        self._limit = limit
        self._loop = loop
        self._long_s = long_s
        self._waiting: deque[_Job] = deque()
        self._counted = 0
        self._idle: list[_Jobs] = []
        self._is_closed = False

    def close(self) -> None:
        """Let the threads end after what they do."""
        self._is_closed = True
        for jobs in self._idle:
            jobs.put(None)
        self._idle.clear()

    async def run(self, what: str, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises; `what` names it in the log ("loading: m:1").

        When the caller is cancelled, work that has begun goes on and its result is dropped.
        """
        job = _Job(what, work, self._loop.create_future())
        self._waiting.append(job)
        self._begin_next()
        result: T = await job.future
        return result

    def _begin_next(self) -> None:
        while self._waiting and self._counted < self._limit:
            job = self._waiting.popleft()
            if job.future.cancelled():
                continue
            self._counted += 1
            job.is_counted = True
            job.timer = self._loop.call_later(self._long_s, self._on_long, job)
            job.thread = self._idle.pop() if self._idle else self._started()
            job.thread.put(job)

    def _started(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        threading.Thread(target=self._serve, args=(jobs,), name="naiad-load", daemon=True).start()
        return jobs

    def _serve(self, jobs: _Jobs) -> None:
        while (job := jobs.get()) is not None:
            is_open = self._work(job)
            del job
            if not is_open:
                return

    def _work(self, job: _Job) -> bool:
        """Do a piece of work and say so; return whether there is still a server to say it to."""
        try:
            end = partial(_set_result, job.future, job.work())
        except Exception as error:
            end = partial(_set_error, job.future, error)
        except BaseException as error:
            # sys.exit() in what is loaded: whoever waits gets it as an error.
            end = partial(_set_error, job.future, RuntimeError(f"{type(error).__name__}: {error}"))
        try:
            self._loop.call_soon_threadsafe(self._end, job, end)
        except RuntimeError:
            _log.warning("%s has ended after the server", job.what)
            return False
        return True

    def _end(self, job: _Job, end: Callable[[], None]) -> None:
        if job.timer is not None:
            job.timer.cancel()
        assert job.thread is not None
        if self._is_closed or len(self._idle) >= self._limit:
            job.thread.put(None)
        else:
            self._idle.append(job.thread)
        self._uncount(job)
        end()

    def _on_long(self, job: _Job) -> None:
        _log.warning("%s has taken %g s and hasn't ended; others no longer wait for it", job.what, self._long_s)
        self._uncount(job)

    def _uncount(self, job: _Job) -> None:
        if job.is_counted:
            job.is_counted = False
            self._counted -= 1
            self._begin_next()


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _set_error(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
