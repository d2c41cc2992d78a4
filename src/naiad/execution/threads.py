"""The bounded pool of threads that batches borrow, and the way back to the event loop.

Owns threads. A job is a callable that runs on a thread and returns the callable that finishes it on the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from naiad.devices.affinity import bind_thread
from naiad.devices.ranges import ranges_text

Completion = Callable[[], None]
Job = Callable[[], Completion]

_log = logging.getLogger("naiad.execution")


class ThreadPool:
    """At most `limit` threads, made as they are first needed. `submit` and `close` are for the loop thread only.

    The threads run on `cpus` only (empty: on any); `suffix` tells them from those of other pools by their names.
    """

    def __init__(
        self, limit: int, loop: asyncio.AbstractEventLoop, cpus: frozenset[int] = frozenset(), suffix: str = ""
    ) -> None:
        self._cpus = cpus
        self._suffix = suffix
        self._limit = limit
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._completions: deque[Completion | None] = deque()
        self._is_wake_pending = False
        self._outstanding = 0
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job) -> None:
        """Run `job` on a thread, at once or when one is free; its completion runs on the loop thread."""
        self._outstanding += 1
        if self._outstanding > len(self._threads) < self._limit:
            self._start_thread()
        self._jobs.put(job)

    def queued_count(self) -> int:
        """Return how many jobs wait for a thread."""
        return max(0, self._outstanding - len(self._threads))

    def close(self) -> None:
        """Let the threads end after the jobs that are queued; doesn't wait for them."""
        for _ in self._threads:
            self._jobs.put(None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"naiad-execution{self._suffix}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        try:
            bind_thread(self._cpus)
        except OSError as error:
            # A CPU may have been taken from the process since the start; batches must run all the same.
            _log.warning("a thread can't be bound to CPUs %s: %s", ranges_text(self._cpus), error)
        while (job := self._jobs.get()) is not None:
            try:
                completion: Completion | None = job()
            except BaseException:
                # Jobs catch what a model raises: this is a fault of ours, and must not cost the pool a thread.
                _log.exception("an execution job failed")
                completion = None
            del job
            self._hand_back(completion)
            del completion

    def _hand_back(self, completion: Completion | None) -> None:
        """Queue the completion and wake the loop, once for all that end before it gets to run."""
        self._completions.append(completion)
        if not self._is_wake_pending:
            self._is_wake_pending = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                _log.warning("an execution ended after the event loop was closed")

    def _drain(self) -> None:
        # Cleared first: whatever is appended from here on is either seen below or wakes the loop again.
        self._is_wake_pending = False
        completions = self._completions
        while completions:
            completion = completions.popleft()
            self._outstanding -= 1
            if completion is not None:
                completion()
