"""The memory budget of a server: who is in memory, who leaves it, who comes back at a request.

Owns `--model-memory-limit`. Which models make room is `policy`'s to say, how they are loaded the manager's. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from naiad.errors import InferenceServerError, invalid_argument, unavailable
from naiad.repository.budget.holding import Holding, Phase
from naiad.repository.budget.meter import GrowthMeter
from naiad.repository.budget.policy import Evictions, Resident, choose
from naiad.repository.budget.size import Need, text_of
from naiad.repository.load_threads import LONG_SECONDS
from naiad.repository.loader import PreparedModel, is_isolated
from naiad.repository.model import Copies, LoadedVersion, Model, Run
from naiad.request.request import InferRequest

T = TypeVar("T")

PARKED_NOTE = "not in memory because of --model-memory-limit, its next request loads it"
MAX_WAITING = 1024
"""How many requests of a model may wait for it to be loaded."""

ROOM_SECONDS = 60.0
"""How long a model waits for others to fall idle."""

LOOK_SECONDS = 5.0
"""How often it is seen whether models have grown."""

_CLOSE_SECONDS = 2.0
# Each is a file of the system's and takes some 20 µs; the next look reads the others.
_MOST_READ_AT_ONCE = 20

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the keeper has done by others. Those that are awaited raise InferenceServerError; texts name work in the log.

    `need` measures files; `load_copies` loads what a parked model lacks, `close_copies` gives copies back that were not put to
    work, `plan_only` makes a version without copies, `run` runs what blocks on a thread for closing, `on_freed` gives memory
    back to the system there. `is_changing`: a model is being reloaded, unloaded, or ends. `on_change` follows each change of
    who is in memory.
    """

    need: Callable[[PreparedModel, int], Awaitable[Need]]
    load_copies: Callable[[PreparedModel, Model], Awaitable[Copies]]
    close_copies: Callable[[str, Copies], Awaitable[None]]
    plan_only: Callable[[PreparedModel, int], Awaitable[LoadedVersion]]
    run: Run
    on_freed: Callable[[], None]
    is_changing: Callable[[Model], bool]
    on_change: Callable[[], None]


class MemoryBudget:
    """See the module. `resident_bytes` returns how much the process itself holds. While `is_starting`, a model that doesn't
    fit stays parked and evicts nobody, and so do those after it.
    """

    def __init__(
        self,
        limit_bytes: int,
        hooks: Hooks,
        loop: asyncio.AbstractEventLoop,
        resident_bytes: Callable[[], int | None],
    ) -> None:
        self.limit_bytes = limit_bytes
        self.is_starting = False
        self._in_row: frozenset[str] = frozenset()
        self._hooks = hooks
        self._loop = loop
        self._meter = GrowthMeter(resident_bytes, self._give_memory_back)
        self._holdings: dict[Holding, None] = {}
        self._by_model: dict[Model, Holding] = {}
        self._closings: set[asyncio.Task[None]] = set()
        self._loads: set[asyncio.Task[None]] = set()
        self._is_look_due = False
        self._next_look: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._is_full = False
        self._may_begin_next = asyncio.Event()

    def holdings(self) -> Iterable[tuple[Model, Holding]]:
        """Return every version that is in memory or can come back to it, with what it takes now."""
        self._read_workers()
        return self._by_model.items()

    def taken_bytes(self) -> int:
        """Return what all models take now, those included that are being loaded or closed."""
        return sum(holding.taken_bytes for holding in self._holdings)

    async def start(self, loads: Sequence[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]) -> None:
        """Run the loads of the start, each with its model's name: one after the other until a model doesn't fit, so that the
        first are in memory and each is measured, then all others at once, which stay parked. One that takes over a minute, or
        waits for others to be loaded, goes on beside the next.
        """
        self.is_starting = True
        self._in_row = frozenset(name for name, _ in loads)
        tasks: list[asyncio.Task[None]] = []
        try:
            for _, load in loads:
                tasks.append(self._loop.create_task(load()))
                if not self._is_full:
                    await self._wait_at_start(tasks[-1])
            await asyncio.gather(*tasks)
        finally:
            self.is_starting = False
            for task in tasks:
                task.cancel()

    async def _wait_at_start(self, task: asyncio.Task[None]) -> None:
        self._may_begin_next.clear()
        waiting = self._loop.create_task(self._may_begin_next.wait())
        await asyncio.wait((task, waiting), timeout=LONG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    def note_waiting(self, name: str) -> None:
        """A model that is being loaded waits for another one, which has to be loaded first: the start goes on. Those that wait
        beside the row, as ensembles do, hold it up by nothing.
        """
        if name in self._in_row:
            self._may_begin_next.set()

    # Versions that are loaded by the manager.

    async def admit(
        self, prepared: PreparedModel, number: int, load: Callable[[], Awaitable[LoadedVersion]], *, is_reload: bool
    ) -> tuple[LoadedVersion, Holding]:
        """Load a version once there is room for it. Without room, one that is new comes back without copies, parked.

        Raises INVALID_ARGUMENT for one that is larger than the limit, UNAVAILABLE for a reload without room; what `load`
        raises. The holding is to be given to `keep`, or to `drop`.
        """
        need = await self._hooks.need(prepared, number)
        holding = Holding(prepared, number, need, fresh_bytes=need.files_bytes)
        self._check_size(holding)
        room = self._room_for(holding, "" if self.is_starting else prepared.source.key)
        self._is_full = self.is_starting and bool(self._is_full or room.missing_bytes or room.keys)
        if room.missing_bytes or self._is_full:
            if is_reload:
                raise unavailable(self._no_room(holding))
            return await self._hooks.plan_only(prepared, number), holding
        holding.phase = Phase.LOADING
        self._holdings[holding] = None
        self._evict(room)
        try:
            await self._wait_for_closings()
            loaded, growth_bytes = await self._measured(prepared, load)
        except BaseException:
            self.drop(holding)
            raise
        holding.measured(loaded.instances, growth_bytes)
        try:
            self._check_size(holding)
        except InferenceServerError:
            await self._hooks.close_copies(prepared.source.name, loaded.instances)
            self.drop(holding)
            raise
        return loaded, holding

    def keep(self, holding: Holding, model: Model) -> None:
        """Look after a version from now on, loaded or parked as it came from `admit`."""
        holding.model = model
        self._holdings[holding] = None
        self._by_model[model] = holding
        if holding.phase is Phase.LOADING:
            self._set_resident(holding)
        else:
            model.park(partial(self._enqueue, holding), PARKED_NOTE)
        self.look_soon()

    async def recall(self, models: Iterable[Model]) -> None:
        """Bring parked models back into memory, where idle ones make room for them. Raises INVALID_ARGUMENT with the reason
        when one can't be loaded.
        """
        for holding in [self._by_model[model] for model in models if model in self._by_model]:
            self._check_size(holding)
            room = self._room_for(holding, holding.prepared.source.key)
            if holding.phase is not Phase.PARKED or room.missing_bytes:
                continue
            await asyncio.wait([self._begin_load(holding, room)])
            if holding.failures:
                raise invalid_argument(f"load failed for {holding.name}: {holding.failure}")

    def drop(self, holding: Holding) -> None:
        """Forget a version that could not be put to work; its copies are closed."""
        self._holdings.pop(holding, None)
        self.look_soon()

    def begin_end(self, model: Model) -> None:
        """Don't bring a model back any more: it is drained and about to be closed."""
        holding = self._by_model.get(model)
        if holding is not None:
            holding.is_gone = True

    def forget(self, model: Model) -> None:
        """Forget a model that is closed."""
        holding = self._by_model.pop(model, None)
        if holding is not None:
            self.drop(holding)

    def stop(self) -> None:
        """Answer whoever waits for room, as the server ends."""
        self._is_stopped = True
        if self._next_look is not None:
            self._next_look.cancel()
        self._look()

    async def close(self) -> None:
        """Wait a moment for loads and closings that are under way."""
        running = self._loads | self._closings
        if running:
            await asyncio.wait(running, timeout=_CLOSE_SECONDS)

    # Requests for parked models.

    def _enqueue(self, holding: Holding, request: InferRequest) -> None:
        """Queue a request of a model that isn't in memory, and have it loaded. Raises UNAVAILABLE when that can't be."""
        model = holding.model
        assert model is not None
        if holding.failures and self._loop.time() < holding.retry_at_s:
            raise unavailable(_failed(holding))
        if model.scheduler.pending_count() >= MAX_WAITING:
            raise unavailable(f"{holding.name} is being loaded, and {MAX_WAITING} requests wait for it already")
        model.scheduler.enqueue(request)
        self._want(holding)

    def _want(self, holding: Holding) -> None:
        if holding.phase is Phase.PARKED:
            holding.phase, holding.waiting_since_s = Phase.WAITING, self._loop.time()
            text = f"no room in memory within {ROOM_SECONDS:g} s"
            holding.patience = self._loop.call_later(ROOM_SECONDS, self._lose_patience, holding, text)
            self.look_soon()

    def look_soon(self) -> None:
        """See at the next turn of the loop who can be loaded and who has to go."""
        if not self._is_look_due:
            self._is_look_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_look_due = False
        is_short = False
        for holding in sorted(self._in(Phase.WAITING), key=lambda holding: holding.waiting_since_s):
            if not holding.has_requests:
                self._end_waiting(holding, Phase.PARKED)
            else:
                is_short = not self._is_begun(holding) or is_short
        if self._is_stopped:
            return
        over = self._choose(0, "")
        self._evict(over)
        if is_short or over.missing_bytes:
            self._watch()
        if self._next_look is None:
            self._next_look = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self._look()

    def _is_begun(self, holding: Holding) -> bool:
        """Begin to load a model that requests wait for; return whether that could be, or failed."""
        if self._is_stopped or holding.size_bytes > self.limit_bytes:
            # One that is larger was found to be so when it was first loaded.
            self._give_up(holding, "the server is shutting down" if self._is_stopped else self._too_large(holding))
            return True
        room = self._room_for(holding, "")
        if room.missing_bytes:
            return False
        self._begin_load(holding, room)
        return True

    def _begin_load(self, holding: Holding, room: Evictions[Holding]) -> asyncio.Task[None]:
        self._end_waiting(holding, Phase.LOADING)
        self._evict(room)
        return self._begin(self._loads, self._load(holding))

    async def _load(self, holding: Holding) -> None:
        model, prepared = holding.model, holding.prepared
        assert model is not None
        _log.info("loading on demand: %s", model.plan.name)
        try:
            await self._wait_for_closings()
            copies, growth_bytes = await self._measured(prepared, partial(self._hooks.load_copies, prepared, model))
        except Exception as error:
            self._fail(holding, _reason(error))
            return
        was_measured = holding.is_measured
        holding.measured(copies, growth_bytes)
        is_too_large = not was_measured and holding.size_bytes > self.limit_bytes
        if holding.is_gone or is_too_large:
            await self._hooks.close_copies(prepared.source.name, copies)
            if not holding.is_gone:
                self._fail(holding, self._too_large(holding))
            return
        try:
            model.resume(copies)
        except InferenceServerError as error:
            await self._hooks.close_copies(prepared.source.name, copies)
            self._fail(holding, error.message)
            return
        holding.demand_load_count += 1
        holding.failures = 0
        self._set_resident(holding)
        self._hooks.on_change()

    def _fail(self, holding: Holding, reason: str) -> None:
        """Answer all who wait for a model that can't be loaded; it stays known, and is tried again after a pause."""
        _log.error("failed to load %s on demand: %s", holding.name, reason)
        holding.note_failure(reason, self._loop.time())
        self._give_up(holding, reason)

    def _lose_patience(self, holding: Holding, text: str) -> None:
        holding.patience = None
        self._give_up(holding, f"{text}: {self._no_room(holding)}")

    def _give_up(self, holding: Holding, reason: str) -> None:
        model = holding.model
        assert model is not None
        self._end_waiting(holding, Phase.PARKED)
        model.scheduler.fail_queued(unavailable(f"{holding.name} could not be loaded at its request: {reason}"))
        model.note = PARKED_NOTE if not holding.failures else f"{PARKED_NOTE}; the last time that failed: {reason}"
        self.look_soon()

    def _end_waiting(self, holding: Holding, phase: Phase) -> None:
        holding.phase = phase
        if holding.patience is not None:
            holding.patience.cancel()
            holding.patience = None

    # Room.

    def _room_for(self, holding: Holding, own_name: str) -> Evictions[Holding]:
        """Return who has to go for a version that takes nothing yet; what is being closed counts as free."""
        return self._choose(holding.size_bytes, own_name)

    def _choose(self, wanted_bytes: int, own_name: str) -> Evictions[Holding]:
        """See `policy.choose`. Models that are being changed stay, but for those of `own_name`, whose change this is."""
        self._read_workers()
        taken_bytes, residents = 0, []
        for holding in self._holdings:
            if holding.phase is not Phase.RESIDENT and holding.phase is not Phase.LOADING:
                continue
            taken_bytes += holding.taken_bytes
            if holding.phase is Phase.RESIDENT:
                is_free = holding.is_idle and self._may_go(holding, own_name)
                residents.append(Resident(holding, holding.size_bytes, holding.last_used_ms, is_free))
        return choose(taken_bytes + wanted_bytes - self.limit_bytes, residents)

    def _read_workers(self) -> None:
        now_s, count = self._loop.time(), 0
        for holding in self._holdings:
            count += holding.read_workers(now_s)
            if count == _MOST_READ_AT_ONCE:
                return

    def _may_go(self, holding: Holding, own_name: str) -> bool:
        assert holding.model is not None
        return holding.prepared.source.key == own_name or not self._hooks.is_changing(holding.model)

    async def _wait_for_closings(self) -> None:
        """Wait until what is being closed is no longer in the way."""
        while self._closings and self.taken_bytes() > self.limit_bytes:
            await asyncio.wait(self._closings, return_when=asyncio.FIRST_COMPLETED)

    def _evict(self, evictions: Evictions[Holding]) -> None:
        for holding in evictions.keys:
            self._park(holding)

    def _park(self, holding: Holding) -> None:
        model = holding.model
        assert model is not None
        _log.info("unloading %s, idle and least recently used, to stay within --model-memory-limit", holding.name)
        holding.phase = Phase.LEAVING
        holding.eviction_count += 1
        leaving = model.park(partial(self._enqueue, holding), PARKED_NOTE)
        self._hooks.on_change()
        self._begin(self._closings, self._close(holding, model, leaving))

    async def _close(self, holding: Holding, model: Model, leaving: list[Callable[[Run], Coroutine[Any, Any, None]]]) -> None:
        try:
            await asyncio.gather(*(leave(self._hooks.run) for leave in leaving))
        except Exception:
            _log.exception("closing %s failed", holding.name)
        model.files.shared.clear()
        await self._give_memory_back()
        holding.phase, holding.grown_bytes = Phase.PARKED, 0
        if holding.has_requests:
            self._want(holding)

    def _watch(self) -> None:
        """Look again as soon as one that is busy falls idle."""
        for holding in self._in(Phase.RESIDENT):
            if holding.has_requests and not holding.is_watched and holding.model is not None:
                holding.is_watched = True
                holding.model.on_unused(partial(self._on_unused, holding))

    def _on_unused(self, holding: Holding) -> None:
        holding.is_watched = False
        self.look_soon()

    # Small things.

    async def _measured(self, prepared: PreparedModel, load: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Load, and see by how much the process has grown; what workers take is asked of the system itself."""
        return (await load(), 0) if is_isolated(prepared.backend) else await self._meter.measure(load)

    async def _give_memory_back(self) -> None:
        await self._hooks.run(self._hooks.on_freed)

    def _set_resident(self, holding: Holding) -> None:
        holding.phase = Phase.RESIDENT
        holding.resident_since_ms = time.time_ns() // 1_000_000

    def _in(self, phase: Phase) -> list[Holding]:
        return [holding for holding in self._holdings if holding.phase is phase]

    def _begin(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _task: self.look_soon())
        return task

    def _check_size(self, holding: Holding) -> None:
        if holding.size_bytes > self.limit_bytes:
            raise invalid_argument(self._too_large(holding))

    def _too_large(self, holding: Holding) -> str:
        return (
            f"{holding.name} takes {text_of(holding.size_bytes)} of memory, more than --model-memory-limit, which is "
            f"{text_of(self.limit_bytes)}"
        )

    def _no_room(self, holding: Holding) -> str:
        busy = sorted(other.name for other in self._in(Phase.RESIDENT) if not other.is_idle)
        return (
            f"{holding.name} needs {text_of(holding.size_bytes)} of memory; of --model-memory-limit, which is "
            f"{text_of(self.limit_bytes)}, {text_of(self.taken_bytes())} are taken, and these are busy: {', '.join(busy)}"
        )


def _failed(holding: Holding) -> str:
    return f"{holding.name} could not be loaded at its request, and is tried again in a moment: {holding.failure}"


def _reason(error: Exception) -> str:
    if isinstance(error, InferenceServerError):
        return error.message
    _log.error("loading on demand failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
