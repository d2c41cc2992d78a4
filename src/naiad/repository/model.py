"""A loaded model version: its plan, scheduler, instances and statistics, joined here and nowhere else.

Owns what belongs to one version from ready to closed. Schedulers and backends don't know each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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
    """One model version that is loaded. Loop thread only, but for `close`.

    `unready_reason` is why it can't serve for a time, "" when it can. `on_readiness` is called when that changes.
    """

    __slots__ = (
        "_idle_callbacks",
        "_instances",
        "load_seconds",
        "on_readiness",
        "placement",
        "plan",
        "scheduler",
        "statistics",
        "unready_reason",
    )

    def __init__(self, loaded: LoadedVersion, runtime: Runtime) -> None:
        plan = loaded.plan
        self.plan = plan
        self.load_seconds = loaded.load_seconds
        self.statistics = ModelStatistics()
        self.unready_reason = ""
        self.on_readiness: Callable[[], None] = lambda: None
        self._idle_callbacks: list[Callable[[], None]] = []
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
        for instance in self._instances:
            instance.on_open_zero = self._on_open_zero

    async def drain(self) -> None:
        """Take no more requests and wait until those that are queued or running have ended."""
        self.scheduler.stop()
        idle = asyncio.Event()
        self.on_idle(idle.set)
        await idle.wait()

    def set_unready(self, reason: str) -> None:
        """Say why the model can't serve from now on, or with "" that it can again."""
        if reason != self.unready_reason:
            self.unready_reason = reason
            self.on_readiness()

    async def check_ready(self) -> bool:
        """Return whether the model serves and each of its instances says that it can."""
        if self.unready_reason:
            return False
        return all(await asyncio.gather(*(instance.check_ready() for instance in self._instances)))

    def running_count(self) -> int:
        """Return how many requests run and have not ended, those included whose batch is done."""
        return self.scheduler.running_count() + self._open_count()

    def on_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when no request is queued, runs or is still to be answered: at once when that is so already."""
        self.scheduler.on_idle(partial(self._wait_for_open, callback))

    def _wait_for_open(self, callback: Callable[[], None]) -> None:
        if self._open_count():
            self._idle_callbacks.append(callback)
        else:
            callback()

    def _on_open_zero(self) -> None:
        if self._open_count():
            return
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            self.on_idle(callback)

    def _open_count(self) -> int:
        return sum([instance.open_count for instance in self._instances])

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
