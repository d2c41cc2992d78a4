"""Loading of models that live in worker processes: from a loading thread, with the work done on the event loop.

Owns the hand-over between the two, and that the worker which completed a config becomes the first instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from naiad.backends.base import WorkerProgram
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.death import WorkerIdentity
from naiad.execution.process.life.start import ImportedWorker, StartedWorker, complete_config, end, import_model, initialize

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spare:
    """A worker that has completed a config, what it runs, and for which version of the model."""

    version: int
    program: WorkerProgram
    worker: ImportedWorker


class WorkerLoader:
    """See the module. Every method blocks and is for loading threads."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host

    def complete(
        self, program: WorkerProgram, config: Mapping[str, Any], identity: WorkerIdentity
    ) -> tuple[dict[str, Any], ImportedWorker]:
        """Return the config as the model's `auto_complete_config` leaves it, and the worker that ran it.

        Raises InferenceServerError when the file can't be imported or the model refuses its config.
        """

        async def run() -> tuple[dict[str, Any], ImportedWorker]:
            worker = await import_model(self._host, self._host.settings, program, identity)
            return await complete_config(worker, config, identity.model), worker

        return self._run(run())

    def start(self, program: WorkerProgram, plan: ModelPlan, spare: ImportedWorker | None) -> list[StartedWorker]:
        """Start a worker for each instance, all at once; `spare` has imported the model already and becomes the first.

        Raises the InferenceServerError of the first that fails; none is left then.
        """

        async def start_one(instance: InstancePlan, imported: ImportedWorker | None) -> StartedWorker:
            if imported is None:
                identity = WorkerIdentity(plan.name, str(plan.version), instance.name)
                imported = await import_model(self._host, self._host.settings, program, identity)
            return await initialize(imported, plan, instance)

        async def run() -> list[StartedWorker]:
            spares = [spare] + [None] * (len(plan.instances) - 1)
            starts = [start_one(instance, imported) for instance, imported in zip(plan.instances, spares)]
            outcomes = await asyncio.gather(*starts, return_exceptions=True)
            errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            started = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            if errors:
                await asyncio.gather(*(end(worker, self._host.settings.stop_timeout_s) for worker in started))
                raise errors[0]
            return started

        return self._run(run())

    def discard(self, worker: ImportedWorker) -> None:
        """End a worker that isn't needed."""
        self._run(end(worker, 0))

    def close(self, workers: list[StartedWorker]) -> None:
        """End workers that were started and not put to work."""

        async def run() -> None:
            await asyncio.gather(*(end(worker, self._host.settings.stop_timeout_s) for worker in workers))

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._host.loop).result()
