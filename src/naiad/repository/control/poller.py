"""Looks at the repositories from time to time and has changed models loaded.

Owns the times and what was seen. What a change is, is `changes`' to say. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from naiad.errors import InferenceServerError
from naiad.repository.control.changes import changes
from naiad.repository.tree import TreeState

_log = logging.getLogger("naiad.repository")

States = Mapping[str, TreeState]


@dataclass(frozen=True, slots=True)
class PollHooks:
    """`look` returns the repositories as they are now; `load` and `unload` begin that for a model, and don't wait for it."""

    look: Callable[[], Awaitable[States]]
    load: Callable[[str], None]
    unload: Callable[[str], None]


class Poller:
    """See the module. `tried` are the states in which models were last loaded; those of the start come from outside."""

    def __init__(self, hooks: PollHooks, interval_s: float) -> None:
        self._hooks = hooks
        self._interval_s = interval_s
        self._before: States = {}
        self._problem = ""
        self.tried: dict[str, TreeState | None] = {}

    async def run(self) -> None:
        """Look for ever, until this is cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look_once()

    async def look_once(self) -> None:
        """Look, and act on what has changed. What can't be looked at changes nothing and is named in the log once."""
        try:
            now = await self._hooks.look()
        except (InferenceServerError, OSError) as error:
            problem = error.message if isinstance(error, InferenceServerError) else str(error)
            if problem != self._problem:
                _log.error("the model repositories can't be looked at, what is loaded stays: %s", problem)
            self._problem = problem
            return
        self._problem = ""
        found = changes(self._before, now, self.tried)
        self._before = now
        for name in found.to_load:
            self.tried[name] = now[name]
            self._hooks.load(name)
        for name in found.to_unload:
            del self.tried[name]
            self._hooks.unload(name)
