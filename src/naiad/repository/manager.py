"""Loading, reloading and unloading of models, one change of a model at a time.

Owns the order of these changes and the states that they lead to. Event loop thread only; what blocks runs on threads. What may
be loaded, and when, is `control`'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, invalid_argument, unavailable
from naiad.execution.process.life.child.memory_use import resident_bytes
from naiad.repository.budget.keeper import Hooks, MemoryBudget
from naiad.repository.budget.loads import BudgetLoads
from naiad.repository.ensembles.joining import Ensembles
from naiad.repository.layout import DUPLICATE, ModelSource, ScanResult, key_of
from naiad.repository.load_threads import LoadThreads, WorkGivenUpError
from naiad.repository.loader import Loader, PreparationError, PreparedModel
from naiad.repository.loading.attempts import Attempts, LoadKey, LoadRules, reason_of
from naiad.repository.loading.together import Together
from naiad.repository.model import Copies, LoadedVersion, Model, Runtime
from naiad.repository.resize import differs_in_counts_only
from naiad.repository.states import UNLOADED, Entry, ModelTable, Origin, State, Version

T = TypeVar("T")

_CLOSING_THREADS = 4

_log = logging.getLogger("naiad.repository")


@dataclass(slots=True, eq=False)
class _Turn:
    """Who may change a model: `lock` is held by one, `count` is how many have it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class RepositoryManager(ModelTable):
    """See the module. `on_change` is called after each change of what can be looked up; `on_ready` with each new model,
    `on_gone` with each that no longer serves, `on_closed` on a thread when one has been given back.

    A loaded model goes on serving until another copy of it can take its place: nothing is refused in between.
    """

    def __init__(self, loader: Loader, runtime: Runtime, rules: LoadRules, memory_limit_bytes: int = 0) -> None:
        super().__init__()
        self._loader = loader
        self._runtime = runtime
        self._loop = runtime.workers.loop
        self._attempts = Attempts(rules, self._loop, self._note_long, loader.give_up)
        runtime.workers.load_waits.on_wait = self._on_load_wait
        self._closing = LoadThreads(_CLOSING_THREADS, self._loop)
        self._leaving: set[Model] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[str, _Turn] = {}
        self._is_closed = False
        self.on_change: Callable[[], None] = lambda: None
        self.on_ready: Callable[[Model], None] = lambda _model: None
        self.on_gone: Callable[[Model], None] = lambda _model: None
        self.on_closed: Callable[[], None] = _no_one
        self._giving_back = Together(lambda: self._closing.run("giving back memory", self.on_closed), self._loop)
        self.ensembles = Ensembles(self, self._turns.__contains__, runtime.workers.load_waits)
        self.budget = self._made_budget(memory_limit_bytes) if memory_limit_bytes else None

    def announce(self, found: ScanResult) -> None:
        """Make the models of a scan known before they are loaded, so that a look-up says LOADING and not unknown.

        Here and elsewhere a model's name is its key (`layout.key_of`).
        """
        for name in found.sources:
            self._entries[name] = Entry()
        for name, places in found.duplicates.items():
            where = ", ".join(map(str, places))
            _log.error("model '%s' is not unique across all model repositories, it is in %s", name, where)
            self.mark_failed(name, DUPLICATE)

    def mark_failed(self, name: str, reason: str) -> None:
        """Make a model known that can't be loaded."""
        self._entries[name] = Entry(State.UNAVAILABLE, reason)

    def _changed(self) -> None:
        self.ensembles.refresh()
        self.on_change()

    async def load(self, name: str, find: Callable[[], ModelSource]) -> None:
        """Load a model, or load it anew beside what serves and put it in its place; return when it is ready.

        `find` blocks and is called on a thread when it is this load's turn; a source equal to what serves changes nothing.
        Raises INVALID_ARGUMENT with the reason when it can't be loaded, what serves goes on then; and what `find` raises.
        """
        async with self._turn(name):
            source = await self._found(name, find)
            try:
                await self._load(self._entries.setdefault(name, Entry()), source)
            finally:
                if source.upload is not None:
                    source.upload.let_go()

    async def _found(self, name: str, find: Callable[[], ModelSource]) -> ModelSource:
        try:
            return await self._attempts.limited(LoadKey(name), f"reading model '{name}'", find, _let_go)
        except WorkGivenUpError as error:
            raise self._failed_to_prepare(self._entries.setdefault(name, Entry()), name, error) from error

    async def unload(self, name: str) -> None:
        """Let a model take no more requests; return then. What is in flight ends before it is given back.

        Does nothing for a model that isn't known.
        """
        async with self._turn(name):
            entry = self._entries.get(name)
            if entry is None:
                return
            entry.origin, entry.state, entry.reason = None, State.READY, ""
            for number, version in entry.versions.items():
                if version.state is State.READY:
                    self._retire(entry, number)
                elif version.state is State.UNAVAILABLE:
                    version.reason = UNLOADED
            if not entry.versions:
                del self._entries[name]
            self._changed()

    def all_models(self) -> list[Model]:
        """Return every model version that is loaded, those included that end what they have."""
        return [*self.models(), *self._leaving]

    def stop_loading(self) -> None:
        """Cut loads short, since the server ends: what starts in a worker process fails, what is loaded is given back."""
        self._is_closed = True
        self._attempts.stop()
        self._loader.stop()
        if self.budget is not None:
            self.budget.stop()

    async def close(self) -> None:
        """Drain every model and give it back."""
        self.stop_loading()
        for entry in self._entries.values():
            for number in entry.ready():
                self._retire(entry, number)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.budget is not None:
            await self.budget.close()
        self._attempts.close()
        self._closing.close()

    async def kill(self) -> None:
        """End every worker process at once, in place of `close`."""
        self.stop_loading()
        await asyncio.gather(*(model.kill() for model in self.all_models()))

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait for the turn to change a model; turns come in order."""
        turn = self._turns.setdefault(name, _Turn())
        turn.count += 1
        try:
            async with turn.lock:
                if self._is_closed:
                    raise unavailable("the server is shutting down")
                yield
        finally:
            turn.count -= 1
            if not turn.count:
                del self._turns[name]
                self.ensembles.notify()
                if self.budget is not None:
                    self.budget.look_soon()

    async def _load(self, entry: Entry, source: ModelSource) -> None:
        if entry.serves(source):
            entry.forget_failures()
            self._changed()
            _log.info("model '%s' is loaded already, and nothing of it has changed", source.name)
            if self.budget is not None:
                await self.budget.recall([version.model for version in entry.versions.values() if version.model is not None])
            return
        ready = entry.ready()
        if not ready:
            entry.state, entry.reason, entry.versions = State.LOADING, "", {}
        try:
            what, prepare = f"preparing model '{source.name}'", partial(self._loader.prepare, source)
            prepared = await self._attempts.repeated(LoadKey(source.name), what, prepare, self._release)
            await self.ensembles.join(prepared.config, prepared.source.namespace)
        except Exception as error:
            raise self._failed_to_prepare(entry, source.name, error) from error
        try:
            if not (ready and await self._is_resized(entry, prepared)):
                await self._load_versions(entry, prepared, is_reload=bool(ready))
        finally:
            if prepared.spare:
                await self._attempts.once(f"ending what prepared '{source.name}'", partial(self._loader.release, prepared))
            await prepared.agents.end_load(self._closing.run)

    def _failed_to_prepare(self, entry: Entry, name: str, error: Exception) -> InferenceServerError:
        reason = reason_of(error)
        _log.error("failed to load '%s': %s", name, reason)
        if entry.ready():
            for number in error.versions if isinstance(error, PreparationError) else ():
                version = entry.versions.setdefault(number, Version(State.UNAVAILABLE))
                if version.state is not State.READY:
                    version.state, version.reason = State.UNAVAILABLE, reason
            entry.note_failed_reload(reason)
        else:
            entry.state, entry.reason = State.UNAVAILABLE, reason
        self._changed()
        return invalid_argument(f"load failed for model '{name}': {reason}")

    async def _load_versions(self, entry: Entry, prepared: PreparedModel, *, is_reload: bool) -> None:
        """Load the versions of a model. Those of a reload take the place of what serves together, once all are loaded; without
        anything that serves, each serves as soon as it can.
        """
        for number in prepared.versions:
            entry.versions.setdefault(number, Version(State.LOADING))
        if not is_reload:
            entry.config = prepared.config
        outcomes = await asyncio.gather(
            *(self._load_version(entry, prepared, number, is_reload) for number in prepared.versions)
        )
        made = {outcome.plan.version: outcome for outcome in outcomes if isinstance(outcome, Model)}
        reasons = {number: outcome for number, outcome in zip(prepared.versions, outcomes) if not isinstance(outcome, Model)}
        if is_reload and reasons:
            self._abandon(entry, made, reasons)
        elif is_reload:
            entry.config = prepared.config
            self._replace(entry, made)
        entry.state, entry.reason = State.READY, ""
        if not reasons:
            entry.origin = Origin(prepared.source, prepared.config)
        self._changed()
        if reasons:
            texts = [f"version {number} is at UNAVAILABLE state: {reason};\n" for number, reason in reasons.items()]
            raise invalid_argument(f"load failed for model '{prepared.source.name}': {''.join(texts)}")

    async def _load_version(self, entry: Entry, prepared: PreparedModel, number: int, is_reload: bool) -> Model | str:
        """Return the model, or why there is none; without anything that serves, its state says so at once."""
        try:
            model = await self._made(prepared, number, is_reload)
        except Exception as error:
            reason = reason_of(error)
            _log.error("failed to load '%s' version %d: %s", prepared.source.name, number, reason)
            if not is_reload:
                entry.versions[number].state, entry.versions[number].reason = State.UNAVAILABLE, reason
            return reason
        if not is_reload:
            self._serve(entry, number, model)
        return model

    async def _made(self, prepared: PreparedModel, number: int, is_reload: bool) -> Model:
        """Load one version and make it ready to serve; when that fails, nothing of it is left."""
        name = prepared.source.name
        _log.info("loading: %s:%d", name, number)
        what = f"loading model '{name}' version {number}"
        work = partial(self._loader.load, prepared, number)

        def on_late(late: LoadedVersion) -> None:
            self._close_late(name, late.instances)

        load, holding = partial(self._attempts.repeated, LoadKey(name, number), what, work, on_late), None
        if self.budget is None or prepared.backend is None:
            loaded = await load()
        else:
            loaded, holding = await self.budget.admit(prepared, number, load, is_reload=is_reload)
        try:
            if self._is_closed:
                raise unavailable("the server is shutting down")
            model = Model(loaded, self._runtime)
        except Exception:
            await self._close_copies(name, loaded.instances)
            if self.budget is not None and holding is not None:
                self.budget.drop(holding)
            raise
        try:
            await model.wait_warm()
        except Exception:
            await model.close(partial(self._closing.run, f"closing what was loaded of '{name}'"))
            if self.budget is not None and holding is not None:
                self.budget.drop(holding)
            raise
        model.namespace = prepared.source.namespace
        prepared.agents.hold_in(model.agents)
        if self.budget is not None and holding is not None:
            self.budget.keep(holding, model)
        if prepared.source.upload is not None:
            prepared.source.upload.hold()
            model.upload = prepared.source.upload
        return model

    async def _close_copies(self, name: str, copies: Copies) -> None:
        await self._closing.run(f"closing what was loaded of '{name}'", partial(self._loader.close, copies))

    def _release(self, prepared: PreparedModel) -> None:
        if prepared.spare or not prepared.agents.is_empty:
            work = partial(self._loader.abandon, prepared)
            self._begin(self._attempts.once(f"ending what prepared '{prepared.source.name}'", work))

    def _close_late(self, name: str, copies: Copies) -> None:
        self._begin(self._close_copies(name, copies))

    def _on_load_wait(self, name: str) -> None:
        self._attempts.stop_counting(name)
        if self.budget is not None:
            self.budget.note_waiting(name)

    def _note_long(self, key: LoadKey, text: str) -> None:
        # By name: namesakes in other namespaces that load as well get the text, too.
        for known in (key.name, *self.keys_of(key.name)):
            if known in self._entries:
                self._entries[known].note_long(key.number, text)

    def _serve(self, entry: Entry, number: int, model: Model) -> None:
        """Let requests go to `model` from now on."""
        version = entry.versions.setdefault(number, Version(State.LOADING))
        version.state, version.reason, version.model = State.READY, "", model
        self.ensembles.add(model)
        model.on_readiness = self._changed
        for agents in model.agents:
            agents.is_serving = True
        self._changed()
        self.on_ready(model)
        _log.info("'%s' is loaded at its first request" if model.is_parked else "successfully loaded '%s'", model.plan.name)

    def _replace(self, entry: Entry, made: dict[int, Model]) -> None:
        """Put the models of a reload in the place of those that serve, which end what they have."""
        for number in entry.ready() if made else ():
            old = entry.versions[number].model
            if old is not None:
                made.get(number, made[max(made)]).follow(old)
        for number, model in made.items():
            old = entry.versions[number].model
            self._serve(entry, number, model)
            if old is not None:
                self._leave(old, None)
        for number in entry.ready():
            if number not in made:
                self._retire(entry, number)
        entry.forget_failures()

    def _abandon(self, entry: Entry, made: dict[int, Model], reasons: dict[int, str]) -> None:
        """Go on with what serves, since not all versions of a reload could be loaded, and say why."""
        for model in made.values():
            self._leave(model, None, has_served=False)
        why = "; ".join(f"version {number}: {reason}" for number, reason in reasons.items())
        for number in (*made, *reasons):
            version = entry.versions[number]
            if version.state is not State.READY:
                text = reasons.get(number, f"loaded, and given back since the reload failed: {why}")
                version.state, version.reason = State.UNAVAILABLE, text
        entry.note_failed_reload(why)

    def _retire(self, entry: Entry, number: int) -> None:
        """Let a version take no more requests; it is UNLOADING until what it has has ended."""
        version = entry.versions[number]
        model, version.model = version.model, None
        version.state, version.reason = State.UNLOADING, ""
        self._changed()
        if model is not None:
            self._leave(model, version)

    def _leave(self, model: Model, version: Version | None, *, has_served: bool = True) -> None:
        """Let `model` end what it has, then give it back; `version` is unloaded then."""
        self._leaving.add(model)
        self.ensembles.discard(model)
        model.on_readiness = _no_one
        self._begin(self._end(model, version, has_served))

    async def _end(self, model: Model, version: Version | None, has_served: bool) -> None:
        name, number = model.plan.name, model.plan.version
        unloading = [self._loop.create_task(agents.begin_unload(self._closing.run)) for agents in model.agents]
        await model.drain()
        if has_served:
            self.on_gone(model)
        if self.budget is not None:
            self.budget.begin_end(model)
        try:
            await model.close(partial(self._closing.run, f"closing model '{name}' version {number}"))
        except Exception:
            _log.exception("closing model '%s' version %d failed", name, number)
        self._leaving.discard(model)
        await self._giving_back.run()
        if self.budget is not None:
            self.budget.forget(model)
        if model.upload is not None:
            model.upload.let_go()
        if version is not None and version.state is State.UNLOADING:
            version.state, version.reason = State.UNAVAILABLE, UNLOADED
            self._drop_uploaded(name, model)
            self._changed()
            _log.info("successfully unloaded '%s' version %d", name, number)
        for agents, told in zip(model.agents, unloading):
            await told
            await agents.let_go(self._closing.run)

    def _drop_uploaded(self, name: str, model: Model) -> None:
        """Forget a model whose only files were a client's, which are gone."""
        entry = self._entries.get(name)
        if entry is None or model.upload is None or name in self._turns:
            return
        if entry.origin is None and all(version.reason == UNLOADED for version in entry.versions.values()):
            del self._entries[name]

    async def _is_resized(self, entry: Entry, prepared: PreparedModel) -> bool:
        """Change the number of instances of what serves, if nothing else differs; return whether that was so.

        Raises INVALID_ARGUMENT when further ones can't be loaded; nothing has changed then.
        """
        numbers = entry.ready()
        models = [model for number in numbers if (model := entry.versions[number].model) is not None]
        is_possible = entry.origin is not None and differs_in_counts_only(entry.origin, prepared)
        if not is_possible or tuple(numbers) != prepared.versions or any(model.down or model.is_parked for model in models):
            return False
        copies: dict[Model, Copies] = {}
        try:
            plans = await self._attempts.once(
                f"planning model '{prepared.source.name}'",
                lambda: {number: self._loader.plan(prepared, number) for number in numbers},
            )
            for model in models:
                copies[model] = await self._more_copies(prepared, model, plans[model.plan.version])
        except Exception as error:
            for loaded in copies.values():
                await self._close_copies(prepared.source.name, loaded)
            raise self._failed_to_prepare(entry, prepared.source.name, error) from error
        for model, further in copies.items():
            prepared.agents.hold_in(model.agents)
            prepared.agents.is_serving = True
            for leave in model.resize(plans[model.plan.version], further):
                self._begin(leave(partial(self._closing.run, f"closing an instance of '{model.plan.name}'")))
        entry.origin, entry.config = Origin(prepared.source, prepared.config), prepared.config
        entry.forget_failures()
        self._changed()
        _log.info("model '%s' goes on with another number of instances", prepared.source.name)
        return True

    async def _more_copies(self, prepared: PreparedModel, model: Model, plan: ModelPlan) -> Copies:
        added = model.added_instances(plan)
        if not added:
            return []
        what = f"loading more instances of '{plan.name}'"
        work = partial(self._loader.load_more, prepared, plan, added, model.files)
        return await self._attempts.repeated(LoadKey(plan.name, plan.version), what, work, partial(self._close_late, plan.name))

    def _made_budget(self, limit_bytes: int) -> MemoryBudget:
        loads = BudgetLoads(self._loader, self._attempts, self._close_late)

        # Both are set later, and anew.
        def on_freed() -> None:
            self.on_closed()

        def on_change() -> None:
            self._changed()

        hooks = Hooks(
            need=loads.need,
            load_copies=loads.load_copies,
            close_copies=self._close_copies,
            plan_only=loads.plan_only,
            run=partial(self._closing.run, "unloading an idle model"),
            on_freed=on_freed,
            is_changing=lambda model: key_of(model.namespace, model.plan.name) in self._turns or model in self._leaving,
            on_change=on_change,
        )
        return MemoryBudget(limit_bytes, hooks, self._loop, partial(resident_bytes, os.getpid()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _let_go(source: ModelSource) -> None:
    if source.upload is not None:
        source.upload.let_go()


def _no_one() -> None:
    """Nobody has to be told."""
