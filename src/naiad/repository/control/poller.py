"""Looks at the repositories from time to time, and when they are said to have changed, and has changed models loaded.

Owns the times and what was seen. What a change is, is `changes`' to say. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from naiad.errors import InferenceServerError
from naiad.repository.control.changes import Changes, changes
from naiad.repository.tree import TreeState

# So many looks come at an even pace: at 2 s, a minute. What changes for longer may never settle.
_PATIENCE = 30

_log = logging.getLogger("naiad.repository")

States = Mapping[str, TreeState]


@dataclass(frozen=True, slots=True)
class PollHooks:
    """`look` returns the repositories as they are now; with False it is one between the regular ones.

    `load` and `unload` begin that for a model, and don't wait for it.
    """

    look: Callable[[bool], Awaitable[States]]
    load: Callable[[str], None]
    unload: Callable[[str], None]


class Poller:
    """See the module. What has changed is looked at again each `settle_s` until it settles, after a while ever more seldom.

    `tried` are the states in which models were last loaded; those of the start come from outside.
    """

    def __init__(self, hooks: PollHooks, interval_s: float, settle_s: float) -> None:
        self._hooks = hooks
        self._interval_s = interval_s
        self._settle_s = min(settle_s, interval_s)
        self._before: States | None = None
        self._problem = ""
        self._unsettled_count = 0
        self._wake = asyncio.Event()
        self.tried: dict[str, TreeState | None] = {}

    def wake(self) -> None:
        """Look soon: something may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look for ever, until this is cancelled. There has been a first look."""
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await self._wait(max(0.0, looked_at + self._interval_s - loop.time()))
            is_regular = loop.time() >= looked_at + self._interval_s
            if is_regular:
                looked_at = loop.time()
            try:
                await self.look_once(is_regular)
            except Exception:
                _log.exception("a look at the model repositories failed, the next one comes in its time")

    async def _wait(self, rest_s: float) -> None:
        """Wait for the next look, which is due in `rest_s` at the latest."""
        if self._unsettled_count:
            # What goes on changing is said again and again: only time helps.
            await asyncio.sleep(min(rest_s, self._settle_s * max(1, self._unsettled_count - _PATIENCE)))
            return
        try:
            await asyncio.wait_for(self._wake.wait(), rest_s)
        except asyncio.TimeoutError:
            return

    async def look_once(self, is_regular: bool) -> None:
        """Look, and act on what has changed. What can't be looked at changes nothing and is named in the log once.

        The first look is what later ones are compared with.
        """
        self._wake.clear()
        try:
            now = await self._hooks.look(is_regular)
        except (InferenceServerError, OSError) as error:
            problem = error.message if isinstance(error, InferenceServerError) else str(error)
            if problem != self._problem:
                _log.error("the model repositories can't be looked at, what is loaded stays: %s", problem)
            self._problem = problem
            return
        self._problem = ""
        found = Changes((), ()) if self._before is None else changes(self._before, now, self.tried)
        self._before = now
        for name in found.to_load:
            self.tried[name] = now[name]
            self._hooks.load(name)
        for name in found.to_unload:
            del self.tried[name]
            self._hooks.unload(name)
        is_settled = dict(now) == self.tried
        self._unsettled_count = 0 if is_settled else self._unsettled_count + 1
