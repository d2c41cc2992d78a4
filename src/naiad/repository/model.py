"""A loaded model version: its plan, scheduler, instances and statistics, joined here and nowhere else.

Owns what belongs to one version from ready to closed. Schedulers and backends don't know each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from naiad.backends.base import Backend, BackendInstance
from naiad.clock import Clock
from naiad.config.plan import ModelPlan
from naiad.errors import invalid_argument
from naiad.execution.placement import Placement, PlacementMode, TurnBudget
from naiad.execution.tensors import BatchTensors
from naiad.execution.thread import ExecutionContext, ThreadInstance
from naiad.execution.threads import ThreadPool
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Scheduler
from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.dynamic.scheduler import DynamicScheduler

PLACEMENT_PARAMETER = "naiad_placement"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all models of a server share. `allows_in_place`: the operator lets models run on the event loop."""

    clock: Clock
    pool: ThreadPool
    budget: TurnBudget
    allows_in_place: bool


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """What loading a version gives, before it is put to work: made on a thread. `load_seconds` is how long it took."""

    plan: ModelPlan
    backend: type[Backend]
    instances: Sequence[BackendInstance]
    load_seconds: float


class Model:
    """One model version that is ready to serve. Loop thread only, but for `close`."""

    __slots__ = ("_instances", "load_seconds", "placement", "plan", "scheduler", "statistics")

    def __init__(self, loaded: LoadedVersion, runtime: Runtime) -> None:
        plan = loaded.plan
        self.plan = plan
        self.load_seconds = loaded.load_seconds
        self.statistics = ModelStatistics()
        self.placement = Placement(_placement_mode(plan, loaded.backend, runtime))
        context = ExecutionContext(
            plan,
            BatchTensors(plan),
            self.statistics,
            self.placement,
            runtime.pool,
            runtime.budget,
        )
        self._instances = [
            ThreadInstance(instance.name, backend, context) for instance, backend in zip(plan.instances, loaded.instances)
        ]
        active = [instance for instance, made in zip(self._instances, plan.instances) if not made.is_passive]
        self.scheduler: Scheduler = (
            DynamicScheduler(active, runtime.clock, plan.dynamic_batching)
            if plan.dynamic_batching is not None
            else DirectScheduler(active, runtime.clock)
        )

    async def drain(self) -> None:
        """Take no more requests and wait until those that are queued or running have ended."""
        self.scheduler.stop()
        idle = asyncio.Event()
        self.scheduler.on_idle(idle.set)
        await idle.wait()

    def close(self) -> None:
        """Give the loaded copies back; blocking, after `drain`."""
        for instance in self._instances:
            instance.close()


def _placement_mode(plan: ModelPlan, backend: type[Backend], runtime: Runtime) -> PlacementMode:
    """Return where the model's batches run: its own wish, within what its backend and the operator allow."""
    text = plan.parameters.get(PLACEMENT_PARAMETER, "auto")
    if text not in [mode.value for mode in PlacementMode]:
        raise invalid_argument(
            f"model '{plan.name}': parameter '{PLACEMENT_PARAMETER}' is '{text}', must be one of auto, in_place, thread"
        )
    wished = PlacementMode(text)
    if wished is PlacementMode.THREAD or not runtime.allows_in_place:
        return PlacementMode.THREAD
    if backend.must_run_in_place(plan):
        return PlacementMode.IN_PLACE
    has_strings = any(tensor.datatype.name == "BYTES" for tensor in plan.inputs)
    if not backend.releases_gil or has_strings:
        # What holds the GIL, or takes time by what is in a string, can't be predicted from sizes.
        return PlacementMode.THREAD
    return wished
