"""The life of an instance's workers: one at a time, a new one after each death.

Owns when a worker is started again, and its replacement when it holds too much memory. Doesn't own what the dead one held. Loop
thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from naiad.config.plan import InstancePlan
from naiad.errors import InferenceServerError, internal
from naiad.execution.process.context import ProcessContext
from naiad.execution.process.life.backoff import Backoff
from naiad.execution.process.life.death import Death, WorkerIdentity
from naiad.execution.process.life.process import WorkerHooks
from naiad.execution.process.life.start import StartedWorker, end, import_model, initialize, share_of
from naiad.worker.frames import Frame

_LOOK_SECONDS = 1.0
# Requests wait for a worker that is to be started within this time.
_SOON_SECONDS = 1.0

_log = logging.getLogger("naiad.execution")


@dataclass(frozen=True, slots=True)
class SupervisorHooks:
    """Who is told: of a frame, of a worker's death (and whether the next start is far off), that a new worker is there, that a
    start failed, that memory came free.
    """

    on_frame: Callable[[Frame], None]
    on_death: Callable[[Death, bool], None]
    on_started: Callable[[StartedWorker], None]
    on_start_failed: Callable[[InferenceServerError], None]
    on_room: Callable[[], None]
    is_idle: Callable[[], bool]


class Supervisor:
    """See the module. `worker` is None while there is none. `is_due`: it is to be replaced once nothing runs in it."""

    def __init__(self, plan: InstancePlan, context: ProcessContext, hooks: SupervisorHooks) -> None:
        self.worker: StartedWorker | None = None
        self.is_due = False
        self._leaving: StartedWorker | None = None
        self._plan = plan
        self._context = context
        self._hooks = hooks
        settings = context.host.settings
        self._backoff = Backoff(settings.restart_delay_s, settings.restart_max_delay_s)
        self._is_proved = True
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None
        self._look_timer: asyncio.TimerHandle | None = None

    def adopt(self, started: StartedWorker) -> None:
        """Take a worker whose model is ready."""
        self.worker = started
        started.queries.is_loading = False
        process = started.process
        process.hooks = WorkerHooks(self._hooks.on_frame, self._on_death, self._hooks.on_room)
        if process.death is not None:
            self._on_death(process.death)
            return
        self._look_later()
        self._hooks.on_started(started)

    def prove(self) -> None:
        """A batch went well: the next restart is at once again."""
        if not self._is_proved:
            self._is_proved = True
            self._backoff.reset()

    def resident_bytes(self) -> int:
        """Return the worker's memory, 0 when there is none."""
        return 0 if self.worker is None else self.worker.process.resident_bytes() or 0

    async def close(self, timeout_s: float) -> None:
        """Let the model finalize and end its worker; no other comes."""
        self._is_closing = True
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._leaving is not None:
            await end(self._leaving, timeout_s)
        await self._end_worker(timeout_s)

    def replace_due(self) -> None:
        """Replace the worker if that is due and nothing runs in it; what it holds at that time counts."""
        if not self.is_due or not self._hooks.is_idle():
            return
        self.is_due = False
        held, limit = self.resident_bytes(), self._context.limits.memory_bytes
        if held > limit:
            self.replace(f"it holds {held} bytes of memory, its limit is {limit}")

    def replace(self, why: str) -> None:
        """Replace the worker, in which nothing runs; `why` completes "is replaced: …"."""
        worker = self.worker
        if worker is None or self._is_closing:
            return
        text = f"the worker of '{self._plan.name}' is replaced: {why}"
        _log.warning("%s", text)
        self._context.owner.restart_counts["memory_limit"] += 1
        self.worker, self._leaving = None, worker
        # What it still says concerns no request.
        worker.process.hooks = WorkerHooks(worker.queries.take)
        self._hooks.on_death(Death("memory_limit", text), False)
        self._task = self._context.host.loop.create_task(self._replace(worker))

    def _on_death(self, death: Death) -> None:
        self.is_due = False
        _log.error("%s", death.headline)
        self._context.owner.restart_counts[death.reason] += 1
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.queries.close()
        delay_s = self._backoff.next_delay_s()
        self._hooks.on_death(death, delay_s > _SOON_SECONDS)
        self._start_later(delay_s)

    def _start_later(self, delay_s: float) -> None:
        if not self._is_closing:
            self._is_proved = False
            self._task = self._context.host.loop.create_task(self._start(delay_s))

    async def _start(self, delay_s: float) -> None:
        """Start a worker after `delay_s`; when that fails, try again later, and so on."""
        await asyncio.sleep(delay_s)
        try:
            started = await self._started()
        except InferenceServerError as error:
            _log.error("a worker of '%s' can't be started again: %s", self._plan.name, error.message)
            self._hooks.on_start_failed(error)
            self._start_later(self._backoff.next_delay_s())
            return
        _log.info("started a new worker of '%s', pid %d", self._plan.name, started.process.pid)
        self.adopt(started)

    async def _started(self) -> StartedWorker:
        context, plan = self._context, self._context.plan
        identity = WorkerIdentity(plan.name, str(plan.version), self._plan.name)
        try:
            share = share_of(context.host.devices, plan.instances, self._plan)
            imported = await import_model(context.host, context.program, identity, share)
            return await initialize(imported, plan, self._plan)
        except OSError as error:
            raise internal(f"the system refuses a worker process of {identity}: {error.strerror}") from error
        except InferenceServerError:
            raise
        except Exception as error:
            # A fault of ours must not end the restarting.
            _log.exception("starting a worker of %s failed", identity)
            raise internal(f"a worker of {identity} can't be started: {type(error).__name__}: {error}") from error

    def _look_later(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._look_timer = self._context.host.loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """See to the worker's memory, from time to time."""
        worker = self.worker
        if worker is None or self._is_closing:
            return
        worker.process.trim()
        self._look_later()
        limit = self._context.limits.memory_bytes
        if limit and self.resident_bytes() > limit:
            self.is_due = True
            self.replace_due()

    async def _replace(self, worker: StartedWorker) -> None:
        await end(worker, self._context.host.settings.stop_timeout_s)
        self._leaving = None
        await self._start(0)

    async def _end_worker(self, timeout_s: float) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            await end(worker, timeout_s)
