"""A loaded model version: its plan, scheduler, instances and statistics, joined here and nowhere else.

Owns what belongs to one version from ready to closed. Schedulers and backends don't know each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from naiad.backends.base import Backend, BackendInstance, ModelFiles, WorkerProgram
from naiad.backends.table import AnyBackend
from naiad.cache.base import ResponseCache
from naiad.cache.front import CacheFront, FrontContext
from naiad.clock import Clock
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.errors import InferenceServerError, unavailable
from naiad.execution.output_checks import OutputChecker
from naiad.execution.placement import Placement, PlacementMode, TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.codec.decode import ResponseDecoder
from naiad.execution.process.codec.encode import BatchEncoder
from naiad.execution.process.context import ProcessContext, WorkerHost, WorkerLimits
from naiad.execution.process.instance import ProcessInstance
from naiad.execution.process.life.start import StartedWorker
from naiad.execution.ragged import RaggedTensors
from naiad.execution.tensors import BatchTensors
from naiad.execution.thread import ExecutionContext, ThreadInstance
from naiad.execution.warm_up import begin_samples
from naiad.observability.statistics import ModelStatistics
from naiad.repository.agents.lifecycle import AgentLifecycle
from naiad.repository.ensembles.holds import Holds
from naiad.repository.layout import UploadFolder
from naiad.repository.placing import placement_mode
from naiad.repository.scheduling import Strategy, made_scheduler
from naiad.request.batch import Instance
from naiad.request.request import InferRequest
from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.ensemble.members import Members
from naiad.schedulers.rate_limiter.limiter import RateLimiter
from naiad.schedulers.rate_limiter.seats import Seats
from naiad.schedulers.sequence.scheduler import SequenceScheduler

Run = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function that blocks on a thread."""

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all models of a server share. `allows_in_place`: the operator lets models run on the event loop. `members` are the
    models themselves, as ensembles use them; None where there can't be any ensemble.
    """

    clock: Clock
    pools: ExecutionPools
    budget: TurnBudget
    allows_in_place: bool
    workers: WorkerHost
    cache: ResponseCache | None = None
    members: Members | None = None
    limiter: RateLimiter | None = None
    client_weights: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class LoadedWorkers:
    """The started workers of a version, and what others are started with after them."""

    program: WorkerProgram
    limits: WorkerLimits
    started: list[StartedWorker]


Copies = Sequence[BackendInstance] | LoadedWorkers
"""Loaded copies of a model version, in the order of the instances that they are for."""

_Instance = ThreadInstance | ProcessInstance


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """What loading a version gives, before it is put to work: made on a thread. `load_seconds` is how long it took.

    `is_parked`: it has no copies yet, they come later. An ensemble has no `backend`, and no instances.
    """

    plan: ModelPlan
    backend: AnyBackend | None
    instances: Copies
    files: ModelFiles
    load_seconds: float
    is_parked: bool = False
    strategy: Strategy | None = None


class Model:
    """One model version that is loaded. Loop thread only. `files` is what further instances are loaded with, `upload` the
    folder that it keeps, `namespace` that of its source, `agents` those of the loads that it is made of.

    `unready_reason` is why it can't serve for a time, "" when it can; `refusal` is the same when that will last, so that
    requests are refused and don't wait. `on_readiness` is called when one changes. `down` are the instances without a worker,
    each with its reason. `enqueue` takes a request; `cached` stands before it when answers are kept; `note` is what is to be
    said of a model although it can serve, `is_parked` whether it has no copies in memory, see `park`.
    """

    __slots__ = (
        "_active",
        "_context",
        "_idle_callbacks",
        "_instances",
        "_leaving",
        "_pools",
        "_seats",
        "_warm_ups",
        "agents",
        "ask_members",
        "cached",
        "down",
        "enqueue",
        "files",
        "holds",
        "is_parked",
        "load_seconds",
        "namespace",
        "note",
        "on_readiness",
        "placement",
        "plan",
        "poison_count",
        "refusal",
        "restart_counts",
        "scheduler",
        "statistics",
        "unready_reason",
        "upload",
    )

    def __init__(self, loaded: LoadedVersion, runtime: Runtime) -> None:
        plan = loaded.plan
        self.plan = plan
        self.load_seconds = loaded.load_seconds
        self.statistics = ModelStatistics()
        self.unready_reason = ""
        self.refusal = ""
        self.on_readiness: Callable[[], None] = _no_one
        self._idle_callbacks: list[Callable[[], None]] = []
        is_isolated = isinstance(loaded.instances, LoadedWorkers)
        has_placement = not is_isolated and loaded.backend is not None
        # The event loop's thread runs on any CPU.
        is_bound = any(runtime.pools.is_bound(instance.host_policy) for instance in plan.instances)
        mode = PlacementMode.THREAD
        if has_placement:
            allows = runtime.allows_in_place and not is_bound
            mode = placement_mode(plan, cast("type[Backend]", loaded.backend), allows_in_place=allows)
        self.placement = Placement(mode)
        self.restart_counts: Counter[str] = Counter()
        self.poison_count = 0
        self.down: dict[Instance, str] = {}
        self.files = loaded.files
        self.upload: UploadFolder | None = None
        self.namespace = ""
        self.agents: list[AgentLifecycle] = []
        self.holds = Holds()
        self.ask_members: Callable[[], Awaitable[bool]] | None = None
        self.scheduler = made_scheduler(
            plan, runtime.clock, runtime.members, self.statistics, loaded.strategy, runtime.client_weights
        )
        self.enqueue: Callable[[InferRequest], None] = self.scheduler.enqueue
        self.note = ""
        self._pools = runtime.pools
        self.cached = self._made_front(runtime) if plan.is_cached else None
        self._context = self._made_context(loaded, runtime)
        self._instances: list[_Instance] = []
        self._active: list[_Instance] = []
        self._leaving: list[_Instance] = []
        self._seats = Seats(runtime.limiter, plan.name, plan.instances)
        self._warm_ups: list[asyncio.Future[InferenceServerError | None]] = []
        self.is_parked = loaded.is_parked
        if not loaded.is_parked:
            self._put_to_work(plan.instances, loaded.instances)

    def worker_memory(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the memory in bytes of every instance that lives in a worker process."""
        for instance in self._instances:
            if isinstance(instance, ProcessInstance):
                yield instance.name, instance.resident_bytes

    def on_down(self, instance: Instance, reason: str, *, is_lasting: bool) -> None:
        """See `InstanceOwner.on_down`. A passive instance takes no requests anyway."""
        if instance not in self._active:
            return
        if instance not in self.down:
            self.scheduler.remove(self._seats.of(instance))
        self.down[instance] = reason
        if len(self.down) < len(self._active):
            return
        self.set_unready(reason, is_lasting=is_lasting)
        if is_lasting:
            self.scheduler.fail_queued(unavailable(reason))

    def on_up(self, instance: Instance) -> None:
        """See `InstanceOwner.on_up`."""
        if self.down.pop(instance, None) is not None:
            self.scheduler.add(self._seats.of(instance))
        self.set_unready("")

    def resize(self, plan: ModelPlan, copies: Copies) -> Sequence[Callable[[Run], Coroutine[Any, Any, None]]]:
        """Go on with the instances of `plan`, which differs from the own plan in nothing else; `copies` are for those that are
        new (`added_instances`), in their order.

        Return a coroutine function for each instance that is no longer in it: it waits until nothing runs there, and closes it.
        """
        added = self.added_instances(plan)
        wanted = {made.name for made in plan.instances}
        removed = [instance for instance in self._instances if instance.name not in wanted]
        self.plan = plan
        self._context = replace(self._context, plan=plan.for_backend())
        leaving = [self._begin_leave(instance) for instance in removed]
        self._put_to_work(added, copies)
        self._check_down()
        return leaving

    def park(self, enqueue: Callable[[InferRequest], None], note: str) -> list[Callable[[Run], Coroutine[Any, Any, None]]]:
        """Give all copies up and go on without: requests go to `enqueue` from now on, which may queue them at the scheduler.

        Return a coroutine function for each instance that was there: it closes it.
        """
        self.enqueue, self.note, self.is_parked = enqueue, note, True
        leaving = [self._begin_leave(instance) for instance in list(self._instances)]
        self._check_down()
        return leaving

    def resume(self, copies: Copies) -> None:
        """Go on with `copies`, one for each instance of the plan, after `park`. Raises what `RateLimiter.check` raises."""
        self._put_to_work(self.plan.instances, copies)
        self.enqueue, self.note, self.is_parked = self.scheduler.enqueue, "", False

    def added_instances(self, plan: ModelPlan) -> list[InstancePlan]:
        """Return the instances of `plan` that aren't there yet."""
        there = {instance.name for instance in self._instances}
        return [made for made in plan.instances if made.name not in there]

    def _put_to_work(self, plans: Sequence[InstancePlan], copies: Copies) -> None:
        instances = self._made_instances(plans, copies)
        self._seats.take(instances, plans)
        self._instances += instances
        self._active += [instance for instance, made in zip(instances, plans) if not made.is_passive]
        is_sole = len(self._active) == 1 and isinstance(self.scheduler, DirectScheduler) and not self._seats
        for instance in self._instances:
            if isinstance(instance, ProcessInstance):
                instance.is_sole = is_sole
        for instance in instances:
            instance.on_open_zero = self._on_open_zero
            if instance in self._active:
                self.scheduler.add(self._seats.of(instance))
        if isinstance(copies, LoadedWorkers):
            for process_instance, started in zip(instances, copies.started):
                assert isinstance(process_instance, ProcessInstance)
                process_instance.adopt(started)
            self._warm_ups = [ended for instance in instances for ended in begin_samples(instance, self._context.plan)]
            for ended in self._warm_ups:
                ended.add_done_callback(self._end_warm_up)

    def _end_warm_up(self, ended: asyncio.Future[InferenceServerError | None]) -> None:
        error = None if ended.cancelled() else ended.result()
        if error is not None:
            _log.warning("model '%s' version %d: %s", self.plan.name, self.plan.version, error.message)

    async def wait_warm(self) -> None:
        """Return when what workers run first has run; in this process it did when the copies were loaded.

        Raises InferenceServerError when some of it failed.
        """
        if self._warm_ups:
            errors = [error for error in await asyncio.gather(*self._warm_ups) if error is not None]
            self._warm_ups = []
            if errors:
                raise errors[0]

    def _begin_leave(self, instance: _Instance) -> Callable[[Run], Coroutine[Any, Any, None]]:
        """Give an instance no more batches; see `resize` for what is returned."""
        self._instances.remove(instance)
        self._leaving.append(instance)
        if instance in self._active:
            self._active.remove(instance)
        self.down.pop(instance, None)
        is_free, is_empty = asyncio.Event(), asyncio.Event()

        def on_open_zero() -> None:
            is_empty.set()
            self._on_open_zero()

        instance.on_open_zero = on_open_zero
        self.scheduler.remove(self._seats.of(instance), is_free.set)

        async def leave(run: Run) -> None:
            await is_free.wait()
            while instance.open_count:
                is_empty.clear()
                await is_empty.wait()
            # The whole model may have been closed meanwhile.
            if instance in self._leaving:
                self._leaving.remove(instance)
                await _close([instance], run)
            self._seats.leave(instance)
            # Without this circle the memory goes at once.
            instance.on_open_zero = _no_one

        return leave

    def _check_down(self) -> None:
        """An instance that has left may have been the last one that could serve, a new one the first."""
        reasons = [self.down.get(instance, "") for instance in self._active]
        self.set_unready("" if "" in reasons else (reasons or [""])[0], is_lasting=bool(self.refusal))

    def _made_front(self, runtime: Runtime) -> CacheFront | None:
        plan, clock, cache = self.plan, runtime.clock, runtime.cache
        if cache is None:
            _log.warning("model '%s': response_cache.enable has no effect, as the server has no --cache-config", plan.name)
            return None

        def enqueue(request: InferRequest) -> None:
            if self.refusal:
                raise unavailable(f"model '{self.plan.name}' version {self.plan.version} is not ready: {self.refusal}")
            self.enqueue(request)

        submit = runtime.pools.default.submit
        context = FrontContext(
            plan.name, str(plan.version), self.statistics, enqueue, submit, clock.call_soon, self._on_open_zero
        )
        return CacheFront(cache, context, plan.answers_digest)

    def _made_context(self, loaded: LoadedVersion, runtime: Runtime) -> ExecutionContext | ProcessContext:
        plan = loaded.plan.for_backend()
        if isinstance(loaded.instances, LoadedWorkers):
            workers = loaded.instances
            return ProcessContext(
                plan,
                workers.program,
                workers.limits,
                runtime.workers,
                self.statistics,
                BatchEncoder(plan),
                ResponseDecoder(plan, OutputChecker(plan)),
                self,
            )
        tensors = RaggedTensors if plan.joins_ragged else BatchTensors
        return ExecutionContext(
            plan,
            tensors(plan, may_omit_outputs=getattr(loaded.backend, "may_omit_outputs", False)),
            self.statistics,
            self.placement,
            runtime.pools.default,
            runtime.budget,
        )

    def _made_instances(self, plans: Sequence[InstancePlan], copies: Copies) -> list[_Instance]:
        context = self._context
        if isinstance(context, ProcessContext):
            return [ProcessInstance(made, context) for made in plans]
        assert not isinstance(copies, LoadedWorkers)
        return [
            ThreadInstance(made.name, backend, replace(context, pool=self._pools.of(made.host_policy)))
            for made, backend in zip(plans, copies)
        ]

    def follow(self, predecessor: Model) -> None:
        """Take the place of `predecessor`, which keeps what it has begun: its sequences go on there."""
        if isinstance(self.scheduler, SequenceScheduler) and isinstance(predecessor.scheduler, SequenceScheduler):
            self.scheduler.follow(predecessor.scheduler)

    def knows_sequence(self, sequence_id: int | str) -> bool:
        """Return whether a sequence of this id is under way."""
        return isinstance(self.scheduler, SequenceScheduler) and self.scheduler.knows(sequence_id)

    def finish_sequences(self) -> None:
        """Take no new sequence; those under way count as unanswered until they end."""
        if isinstance(self.scheduler, SequenceScheduler):
            self.scheduler.expect_rest()
            self.scheduler.stop()

    async def drain(self) -> None:
        """Take no more requests and wait until those that are queued or running have ended, those first of who holds it."""
        await self.holds.wait_free()
        if self.cached is not None:
            # What is held there is accepted, and may still have to run.
            await self.cached.wait_idle()
        self.scheduler.stop()
        idle = asyncio.Event()
        self.on_idle(idle.set)
        await idle.wait()

    def set_unready(self, reason: str, *, is_lasting: bool = True) -> None:
        """Say why the model can't serve from now on, or with "" that it can again. Requests wait for one that soon can."""
        refusal = reason if is_lasting else ""
        if (reason, refusal) != (self.unready_reason, self.refusal):
            self.unready_reason, self.refusal = reason, refusal
            self.on_readiness()

    async def check_ready(self) -> bool:
        """Return whether the model serves and each instance that takes its requests says that it can."""
        if self.unready_reason:
            return False
        if self.ask_members is not None:
            return await self.ask_members()
        up = [instance for instance in self._active if instance not in self.down]
        return all(await asyncio.gather(*(instance.check_ready() for instance in up)))

    def running_count(self) -> int:
        """Return how many requests run and have not ended, those included whose batch is done."""
        return self.scheduler.running_count() + self._open_count()

    @property
    def is_in_use(self) -> bool:
        """Whether a request is queued, runs or is still to be answered, or a sequence has begun and not ended."""
        scheduler = self.scheduler
        has_sequences = isinstance(scheduler, SequenceScheduler) and scheduler.sequence_count() > 0
        return has_sequences or bool(scheduler.pending_count() or self.running_count())

    def on_unused(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when `is_in_use` may have become false; only for one that is in use."""
        scheduler = self.scheduler
        if isinstance(scheduler, SequenceScheduler) and scheduler.sequence_count():
            scheduler.on_no_sequences(callback)
        else:
            self.on_idle(callback)

    def on_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when no request is queued, runs or is still to be answered: at once when that is so already."""
        self.scheduler.on_idle(partial(self._wait_for_open, callback))

    def _wait_for_open(self, callback: Callable[[], None]) -> None:
        if self._open_count() or self._held_count():
            self._idle_callbacks.append(callback)
        else:
            callback()

    def _on_open_zero(self) -> None:
        if not self._idle_callbacks or self._open_count() or self._held_count():
            return
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            self.on_idle(callback)

    def _held_count(self) -> int:
        return 0 if self.cached is None else self.cached.open_count

    def _open_count(self) -> int:
        return sum([instance.open_count for instance in (*self._instances, *self._leaving)])

    async def kill(self) -> None:
        """End every worker at once, whatever it runs; what runs in a thread can't be stopped."""
        instances = (*self._instances, *self._leaving)
        workers = [instance for instance in instances if isinstance(instance, ProcessInstance)]
        await asyncio.gather(*(worker.close(is_hurried=True) for worker in workers))

    async def close(self, run: Run) -> None:
        """Give the loaded copies back, after `drain`; `run` runs what blocks on a thread."""
        instances = [*self._instances, *self._leaving]
        self._leaving.clear()
        await _close(instances, run)
        # Without these circles the memory goes at once.
        for instance in instances:
            self.scheduler.remove(self._seats.of(instance))
            self._seats.leave(instance)
            instance.on_open_zero = _no_one
        self._instances.clear()
        self._active.clear()
        self.down.clear()
        self.enqueue = self.scheduler.enqueue
        if self.cached is not None:
            self.cached.close()
            self.cached = None
        self.on_readiness = _no_one
        self.files.shared.clear()


async def _close(instances: Sequence[_Instance], run: Run) -> None:
    workers = [instance for instance in instances if isinstance(instance, ProcessInstance)]
    copies = [instance for instance in instances if isinstance(instance, ThreadInstance)]

    def close_copies() -> None:
        for copy in copies:
            copy.close()

    await asyncio.gather(*(worker.close() for worker in workers))
    if copies:
        await run(close_copies)


def _no_one() -> None:
    """Nobody has to be told."""
