"""What becomes of a load, told to the agents that have looked at it.

Owns the order: LOAD, LOAD_COMPLETE, UNLOAD, UNLOAD_COMPLETE, or LOAD, LOAD_FAIL; each once at most, to all agents of the load.
What an agent raises after LOAD is logged and changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from functools import partial

from naiad.repository.agents.base import AgentModel, RepositoryAgent

Run = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Runs a function that blocks on a thread; the text names it in the log."""

_Told = tuple[str, RepositoryAgent, AgentModel]
"""An agent's name, the agent, and the model as it saw it at LOAD."""

_log = logging.getLogger("naiad.repository")


class _Stage(Enum):
    LOADING = 0
    LOADED = 1
    UNLOADING = 2
    ENDED = 3


class AgentLifecycle:
    """The agents of one load, in the order of the config; there may be none.

    The methods of the five actions block and may be called on several threads at once. All else is for the loop thread: whoever
    uses the model's files holds this, and the load itself until `end_load`. `is_serving` says that something of it has served.
    """

    def __init__(self, told: Sequence[_Told] = ()) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._stage = _Stage.LOADING
        self._holders = 1
        self.is_serving = False

    @property
    def is_empty(self) -> bool:
        """Whether there are no agents to tell anything."""
        return not self._told

    def load_complete(self) -> None:
        """Say that the model is loaded, last agent first."""
        with self._lock:
            if self._stage is _Stage.LOADING:
                self._stage = _Stage.LOADED
                self._tell(
                    "LOAD_COMPLETE", ((name, partial(agent.load_complete, model)) for name, agent, model in self._reversed)
                )

    def load_fail(self) -> None:
        """Say that nothing of the model is loaded, last agent first."""
        with self._lock:
            if self._stage is _Stage.LOADING:
                self._stage = _Stage.ENDED
                self._tell("LOAD_FAIL", ((name, partial(agent.load_fail, model)) for name, agent, model in self._reversed))

    def unload(self) -> None:
        """Say that the model takes no more requests, first agent first; before that that it is loaded, if that is new."""
        self.load_complete()
        with self._lock:
            if self._stage is _Stage.LOADED:
                self._stage = _Stage.UNLOADING
                self._tell("UNLOAD", ((name, partial(agent.unload, model)) for name, agent, model in self._told))

    def unload_complete(self) -> None:
        """Say that nothing of the model is left, last agent first."""
        self.unload()
        with self._lock:
            if self._stage is _Stage.UNLOADING:
                self._stage = _Stage.ENDED
                calls = ((name, partial(agent.unload_complete, model)) for name, agent, model in self._reversed)
                self._tell("UNLOAD_COMPLETE", calls)

    def hold_in(self, held: list[AgentLifecycle]) -> None:
        """Put the end off until as many calls of `let_go`, and be in that list; nothing when there are no agents."""
        if self._told:
            self._holders += 1
            held.append(self)

    async def end_load(self, run: Run) -> None:
        """Say how the load has ended; a failed one only when nothing is left of it."""
        if self.is_serving and self._told:
            await run("telling repository agents of a load", self.load_complete)
        await self.let_go(run)

    async def begin_unload(self, run: Run) -> None:
        """Say that the model takes no more requests. Does nothing for what has never served."""
        if self.is_serving and self._told:
            await run("telling repository agents of an unload", self.unload)

    async def let_go(self, run: Run) -> None:
        """Be done with it; the last one tells the agents that."""
        self._holders -= 1
        if not self._holders and self._told:
            await run("telling repository agents of the end", self.unload_complete if self.is_serving else self.load_fail)

    @property
    def _reversed(self) -> Sequence[_Told]:
        return self._told[::-1]

    def _tell(self, action: str, calls: Iterable[tuple[str, Callable[[], None]]]) -> None:
        for name, call in calls:
            try:
                call()
            except (Exception, SystemExit) as error:  # noqa: PERF203 - one that fails keeps the others from nothing
                _log.error("repository agent '%s' failed at %s: %s: %s", name, action, type(error).__name__, error)
