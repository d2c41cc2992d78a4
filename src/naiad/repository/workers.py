"""Loading of models that live in worker processes: from a loading thread, with the work done on the event loop.

Owns the hand-over between the two, and that the worker which completed a config becomes the first instance.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from naiad.backends.base import WorkerProgram
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.devices.devices import ANY_CPU, CpuShare
from naiad.errors import unavailable
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.death import WorkerIdentity
from naiad.execution.process.life.start import (
    ImportedWorker,
    StartedWorker,
    complete_config,
    end,
    import_model,
    initialize,
    share_of,
)

T = TypeVar("T")

_STOPPED = "the server is shutting down"
_GIVEN_UP = "the load was given up, its worker processes were ended"


@dataclass(frozen=True, slots=True)
class Spare:
    """A worker that has completed a config, what it runs, for which version of the model, and its share of the CPUs."""

    version: int
    program: WorkerProgram
    worker: ImportedWorker
    share: CpuShare = ANY_CPU


class WorkerLoader:
    """See the module. Every method blocks and is for loading threads."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host
        self._starting: dict[int, concurrent.futures.Future[Any]] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """End the workers that are starting, whose loading fails with that; no other starts. Loop thread only."""
        self._is_stopped = True
        for future in list(self._starting.values()):
            future.cancel()

    def give_up(self, thread_id: int) -> None:
        """End the workers whose start a thread waits for; that fails. Loop thread only."""
        future = self._starting.get(thread_id)
        if future is not None:
            future.cancel()

    def share_of(self, instances: Sequence[InstancePlan], instance: InstancePlan) -> CpuShare:
        """Return what the worker of `instance`, which is one of the model's `instances`, gets of the machine's CPUs."""
        return share_of(self._host.devices, instances, instance)

    def complete(
        self, program: WorkerProgram, config: Mapping[str, Any], identity: WorkerIdentity, share: CpuShare = ANY_CPU
    ) -> tuple[dict[str, Any], ImportedWorker]:
        """Return the config as the model's `auto_complete_config` leaves it, and the worker that ran it.

        `share` is what it gets of the CPUs. Raises InferenceServerError when the file can't be imported or the model refuses
        its config.
        """

        async def run() -> tuple[dict[str, Any], ImportedWorker]:
            worker = await import_model(self._host, program, identity, share)
            return await complete_config(worker, config, identity.model), worker

        return self._start(run())

    def start(
        self, program: WorkerProgram, plan: ModelPlan, instances: Sequence[InstancePlan], spare: ImportedWorker | None
    ) -> list[StartedWorker]:
        """Start a worker for each of `instances`, all at once; `spare` has imported the model already and becomes the first.

        Raises the InferenceServerError of the first that fails; none is left then.
        """

        async def start_one(instance: InstancePlan, imported: ImportedWorker | None) -> StartedWorker:
            if imported is None:
                identity = WorkerIdentity(plan.name, str(plan.version), instance.name)
                share = self.share_of(plan.instances, instance)
                imported = await import_model(self._host, program, identity, share)
            return await initialize(imported, plan, instance)

        async def run() -> list[StartedWorker]:
            spares = [spare] + [None] * (len(instances) - 1)
            starts = [start_one(instance, imported) for instance, imported in zip(instances, spares)]
            return await self._all_or_none([self._host.loop.create_task(start) for start in starts])

        if self._is_stopped and spare is not None:
            self.discard(spare)
        return self._start(run())

    async def _all_or_none(self, starts: Sequence[asyncio.Task[StartedWorker]]) -> list[StartedWorker]:
        """Return what all tasks return; when one fails, or this is cancelled, nothing of the others is left."""
        try:
            await asyncio.wait(starts)
        except asyncio.CancelledError:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        started = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        if errors:
            await asyncio.gather(*(end(worker, self._host.settings.stop_timeout_s) for worker in started))
            raise errors[0]
        return started

    def discard(self, worker: ImportedWorker) -> None:
        """End a worker that isn't needed."""
        self._run(end(worker, 0))

    def close(self, workers: list[StartedWorker]) -> None:
        """End workers that were started and not put to work."""

        async def run() -> None:
            await asyncio.gather(*(end(worker, self._host.settings.stop_timeout_s) for worker in workers))

        self._run(run())

    def _start(self, work: Coroutine[Any, Any, T]) -> T:
        """As `_run`, for what `stop` cuts short. Raises UNAVAILABLE then."""
        if self._is_stopped:
            work.close()
            raise unavailable(_STOPPED)
        future = asyncio.run_coroutine_threadsafe(work, self._host.loop)
        self._starting[threading.get_ident()] = future
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise unavailable(_STOPPED if self._is_stopped else _GIVEN_UP) from None
        finally:
            del self._starting[threading.get_ident()]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._host.loop).result()
