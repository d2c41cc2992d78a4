"""Blocking work of loads: on threads, again after failures, given up when it hangs.

Owns these rules and what is said of them. What the work is, and what follows from its end, is the manager's. Event loop thread
only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from naiad.errors import InferenceServerError
from naiad.repository.load_threads import LONG_SECONDS, LoadThreads, WorkGivenUpError, WorkTerms

T = TypeVar("T")

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class LoadRules:
    """How models are loaded: how many at once, how often again after a failure, and the seconds after which a load is given up
    (0: never) and after which it no longer keeps others waiting.
    """

    thread_count: int = 1
    retry_count: int = 0
    timeout_s: float = 0.0
    long_s: float = LONG_SECONDS


@dataclass(frozen=True, slots=True)
class LoadKey:
    """Whose work it is: a model's, or with `number` one version's."""

    name: str
    number: int | None = None


class Attempts:
    """See the module. `on_long` is called with whose work takes long and the text for its state, `give_up` with a thread whose
    work nobody waits for any more.
    """

    def __init__(
        self,
        rules: LoadRules,
        loop: asyncio.AbstractEventLoop,
        on_long: Callable[[LoadKey, str], None],
        give_up: Callable[[int], None],
    ) -> None:
        self._rules = rules
        self._threads = LoadThreads(rules.thread_count, loop, rules.long_s)
        self._on_long = on_long
        self._give_up = give_up
        self._is_stopped = False
        self.stop_counting = self._threads.stop_counting

    def stop(self) -> None:
        """Try nothing again from now on."""
        self._is_stopped = True

    def close(self) -> None:
        """Let the threads end after what they do."""
        self._threads.close()

    async def once(self, what: str, work: Callable[[], T]) -> T:
        """Run work that isn't given up."""
        return await self._threads.run(what, work)

    async def limited(self, key: LoadKey, what: str, work: Callable[[], T], on_late: Callable[[T], None]) -> T:
        """Run work that may hang; `on_late` gets what it returns when nobody waits for it any more.

        Raises WorkGivenUpError after the time limit, and what `LoadThreads.run` raises.
        """

        def on_long() -> None:
            since = datetime.now(timezone.utc) - timedelta(seconds=self._rules.long_s)
            self._on_long(key, f"loading since {since:%Y-%m-%d %H:%M:%S} UTC")

        terms = WorkTerms(key.name, self._rules.timeout_s, on_long, self._give_up, on_late)
        return await self._threads.run(what, work, terms)

    async def repeated(self, key: LoadKey, what: str, work: Callable[[], T], on_late: Callable[[T], None]) -> T:
        """As `limited`, again after a failure as often as the operator wants; what hangs isn't tried again."""
        left = self._rules.retry_count
        while True:
            try:
                return await self.limited(key, what, work, on_late)
            except WorkGivenUpError:
                raise
            except Exception as error:
                if self._is_stopped or not left:
                    raise
                _log.warning("%s failed, it is tried again (--model-load-retry-count): %s", what, reason_of(error))
            left -= 1


def reason_of(error: Exception) -> str:
    """Return what a model's state says after this error."""
    if isinstance(error, InferenceServerError):
        return error.message
    # A fault of ours: the operator gets the type, the log the place.
    _log.error("loading failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
