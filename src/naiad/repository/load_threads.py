"""Threads for blocking work on models: reading repositories, loading, closing.

Owns how many work at once, that work which takes long doesn't keep others waiting, and that work which hangs is given up. Work
goes to the thread that was last used, as each thread has memory of its own that it keeps. The process doesn't wait for them
when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from naiad.errors import Code, InferenceServerError, unavailable

T = TypeVar("T")

# Work that has taken this long no longer counts: another one may begin.
LONG_SECONDS = 60.0

# A thread can't be stopped: so many that hang are kept, with further ones the server would run out of them.
MOST_GIVEN_UP = 64

_log = logging.getLogger("naiad.repository")


class WorkGivenUpError(InferenceServerError):
    """Work has taken longer than it may; its thread may still be at it."""


@dataclass(frozen=True, slots=True)
class WorkTerms(Generic[T]):
    """What holds for a piece of work that may hang. Every function is called on the loop's thread.

    `model` is whose work it is. After `limit_s` seconds it is given up (0: never): `on_given_up` is called with its thread, and
    `on_late` with what it returns after all. `on_long` is called when it no longer counts.
    """

    model: str
    limit_s: float
    on_long: Callable[[], None]
    on_given_up: Callable[[int], None]
    on_late: Callable[[T], None]


class _Job:
    __slots__ = ("future", "is_counted", "is_given_up", "terms", "thread", "thread_id", "timers", "what", "work")

    def __init__(self, what: str, work: Callable[[], Any], future: asyncio.Future[Any], terms: WorkTerms[Any] | None) -> None:
        self.what = what
        self.work = work
        self.future = future
        self.terms = terms
        self.is_counted = False
        self.is_given_up = False
        self.timers: list[asyncio.TimerHandle] = []
        self.thread: _Jobs | None = None
        self.thread_id = 0


_Jobs = SimpleQueue[_Job | None]
"""What a thread is to do, and by which it is known."""


class LoadThreads:
    """At most `limit` pieces of work at once, but for those that take over `long_s` seconds. Loop thread only.

    `given_up_count` is how much work was given up and still hangs.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, long_s: float = LONG_SECONDS) -> None:
        self._limit = limit
        self._loop = loop
        self._long_s = long_s
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._counted = 0
        self.given_up_count = 0
        self._idle: list[_Jobs] = []
        self._is_closed = False

    def close(self) -> None:
        """Let the threads end after what they do."""
        self._is_closed = True
        for jobs in self._idle:
            jobs.put(None)
        self._idle.clear()

    async def run(self, what: str, work: Callable[[], T], terms: WorkTerms[T] | None = None) -> T:
        """Return what `work` returns, or raise what it raises; `what` names it in the log ("loading: m:1").

        Raises WorkGivenUpError when `terms` say so, UNAVAILABLE while too much work hangs. When the caller is cancelled, work
        that has begun goes on and its result is dropped.
        """
        if terms is not None and self.given_up_count >= MOST_GIVEN_UP:
            raise unavailable(
                f"{what} isn't begun: {self.given_up_count} loads were given up and still hang in their threads, which only a "
                "restart of the server ends"
            )
        job = _Job(what, work, self._loop.create_future(), terms)
        self._waiting.append(job)
        self._begin_next()
        result: T = await job.future
        return result

    def stop_counting(self, model: str) -> None:
        """Let another one begin, since the work of `model` waits for it."""
        for job in list(self._running):
            if job.terms is not None and job.terms.model == model:
                self._uncount(job)

    def _begin_next(self) -> None:
        while self._waiting and self._counted < self._limit:
            job = self._waiting.popleft()
            if job.future.cancelled():
                continue
            self._counted += 1
            job.is_counted = True
            self._running.add(job)
            job.timers.append(self._loop.call_later(self._long_s, self._on_long, job))
            if job.terms is not None and job.terms.limit_s:
                job.timers.append(self._loop.call_later(job.terms.limit_s, self._give_up, job, job.terms))
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
        job.thread_id = threading.get_ident()
        result: Any = None
        failure: Exception | None = None
        try:
            result = job.work()
        except Exception as error:
            failure = error
        except BaseException as error:
            # sys.exit() in what is loaded: whoever waits gets it as an error.
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            self._loop.call_soon_threadsafe(partial(self._end, job, result, failure))
        except RuntimeError:
            _log.warning("%s has ended after the server", job.what)
            return False
        return True

    def _end(self, job: _Job, result: Any, failure: Exception | None) -> None:
        for timer in job.timers:
            timer.cancel()
        self._running.discard(job)
        assert job.thread is not None
        if self._is_closed or len(self._idle) >= self._limit:
            job.thread.put(None)
        else:
            self._idle.append(job.thread)
        self._uncount(job)
        if job.is_given_up:
            self.given_up_count -= 1
            _log.warning("%s has ended after it was given up: %s", job.what, failure or "what it loaded is dropped")
        if not job.future.done():
            _set(job.future, result, failure)
        elif job.terms is not None and failure is None:
            job.terms.on_late(result)

    def _on_long(self, job: _Job) -> None:
        _log.warning("%s has taken %g s and hasn't ended; others no longer wait for it", job.what, self._long_s)
        self._uncount(job)
        if job.terms is not None and not job.future.done():
            job.terms.on_long()

    def _give_up(self, job: _Job, terms: WorkTerms[Any]) -> None:
        job.is_given_up = True
        self.given_up_count += 1
        text = f"{job.what} has taken {terms.limit_s:g} s (--model-load-timeout-secs) and was given up"
        _log.error("%s; what hangs in a thread of the server goes on there", text)
        if not job.future.done():
            job.future.set_exception(WorkGivenUpError(Code.UNAVAILABLE, text))
        self._uncount(job)
        terms.on_given_up(job.thread_id)

    def _uncount(self, job: _Job) -> None:
        if job.is_counted:
            job.is_counted = False
            self._counted -= 1
            self._begin_next()


def _set(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
