"""Codec work that is too long for the event loop: one thread, and the way back.

Owns the thread and the bound of what waits for it. Worth it for work that frees the GIL (gzip, copying through pipes).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from naiad.errors import InferenceServerError, internal, unavailable

MAX_WAITING = 64

Result = TypeVar("Result")

_log = logging.getLogger("naiad.codec")


class CodecThread:
    """Runs one piece of work after the other; loop thread only. The thread is made when it is first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._waiting = 0

    def submit(self, work: Callable[[], Result], done: Callable[[Result | InferenceServerError], None]) -> None:
        """Run `work` on the thread and `done` with its result, or the error it raised, on the loop thread.

        Raises UNAVAILABLE when too much waits already.
        """
        if self._waiting >= MAX_WAITING:
            raise unavailable(f"{self._waiting} requests with large bodies wait to be read or written, try again later")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self._waiting += 1
        future = self._loop.run_in_executor(self._executor, work)

        def finish(ended: asyncio.Future[Result]) -> None:
            self._waiting -= 1
            done(_outcome(ended))

        future.add_done_callback(finish)

    def close(self) -> None:
        """End the thread after what it is doing; what waits gets an error."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


def _outcome(ended: asyncio.Future[Any]) -> Any:
    """Return what the work returned, or the error that takes its place."""
    if ended.cancelled():
        return unavailable("the server is shutting down")
    error = ended.exception()
    if error is None:
        return ended.result()
    if isinstance(error, InferenceServerError):
        return error
    _log.error("a codec failed by a fault of the server", exc_info=error)
    return internal("internal error, see the server's log")
