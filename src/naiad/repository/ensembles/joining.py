"""Ensembles among the other models: they wait for the models of their steps, fit them, and are ready as long as these are.

Owns these rules. What is loaded when, and how, is the manager's. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from naiad.config.findings import refuse
from naiad.config.plan import StepPlan
from naiad.config.validate.wiring import KnownModels, circular_findings, wiring_findings
from naiad.errors import InferenceServerError
from naiad.execution.process.load_waits import LoadWaits
from naiad.repository.ensembles.fitting import fitted
from naiad.repository.layout import key_of, name_of
from naiad.repository.model import Model
from naiad.repository.states import ModelTable
from naiad.schedulers.ensemble.scheduler import EnsembleScheduler


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """What an ensemble fits: of each step's model its plan, or its own fit if it is an ensemble. A change makes another one."""

    members: tuple[object, ...]


class Ensembles:
    """See the module. `is_changing` tells whether a load or unload of a model is under way.

    `load_missing` loads a model that isn't there, where that is allowed: with explicit control, as nobody else does it.
    `load_again` begins the load of an ensemble that failed and may do better now, where the repositories are followed.
    """

    def __init__(self, table: ModelTable, is_changing: Callable[[str], bool], waits: LoadWaits) -> None:
        self._table = table
        self._is_changing = is_changing
        self._waits = waits
        self._joining: dict[str, Any] = {}
        self._failed: dict[str, set[str]] = {}
        self._loaded: dict[Model, _Fit] = {}
        self._problems: dict[Model, str] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._is_refreshing = False
        self.load_missing: Callable[[str], Awaitable[None]] | None = None
        self.load_again: Callable[[str], None] | None = None

    # While one is loaded.

    async def join(self, config: Any, namespace: str = "") -> None:
        """Wait until the models of an ensemble's steps are loaded, and make its completed `config` fit them; nothing for other
        models. `namespace` is the ensemble's. Raises INVALID_ARGUMENT with everything that doesn't fit.
        """
        if not config.HasField("ensemble_scheduling"):
            return
        key = key_of(namespace, config.name)
        self._joining[key] = config
        members = {step.model_name: self._key(namespace, step.model_name) for step in config.ensemble_scheduling.step}
        self._failed[key] = set(members.values())
        try:
            # All that take part in a circle know of each other by the time when the last of them comes.
            refuse(circular_findings(config, self._known(namespace)))
            for name in sorted(members):
                await self._wait_for(key, members[name])
            known = self._known(namespace)
            refuse(wiring_findings(config, known))
            _set_decoupled(config, known)
            del self._failed[key]
        finally:
            del self._joining[key]

    def notify(self) -> None:
        """Look again at what is waited for: something has changed, or may."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_for(self, key: str, member: str) -> None:
        with self._waits.waiting(key, member):
            has_waited = False
            while self._is_changing(member) or self._table.is_loading(member):
                has_waited = True
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            if self.load_missing is not None and not has_waited and not self._table.is_loaded(member):
                # Why it can't be loaded is in its state, and comes out with the findings.
                with contextlib.suppress(InferenceServerError):
                    await self.load_missing(member)

    def _key(self, namespace: str, name: str) -> str:
        """Return the key of the model that a step calls `name`, of one that nobody knows what it would have."""
        try:
            key = self._table.key_for(name, namespace)
        except InferenceServerError:
            return name  # It is ambiguous, which the findings say.
        return key if key != name else key_of(namespace, name)

    def _known(self, namespace: str) -> KnownModels:
        configs = {**self._table.configs(), **self._joining}
        names = {config.name for config in configs.values()}
        keys = {name: key for name in names if (key := self._key(namespace, name)) in configs}
        return KnownModels(
            {name: configs[key] for name, key in keys.items()},
            {name_of(key): reason for key, reason in self._table.failures() if key not in configs},
            {name: self._table.loaded_versions(key) for name, key in keys.items()},
        )

    # While one serves.

    def add(self, model: Model) -> None:
        """Know a model that serves from now on: an ensemble, or one that an ensemble has waited for in vain."""
        key = key_of(model.namespace, model.plan.name)
        for failed in [ensemble for ensemble, members in self._failed.items() if key in members]:
            if self.load_again is not None and failed not in self._joining:
                self.load_again(failed)
        if model.plan.ensemble is not None:
            self._loaded[model] = _Fit(())
            model.ask_members = lambda: self._are_members_ready(model)
            _scheduler(model).namespace = model.namespace

    def discard(self, model: Model) -> None:
        """Forget a model that serves no longer."""
        self._loaded.pop(model, None)
        self._problems.pop(model, None)

    def refresh(self) -> None:
        """Let every ensemble be ready exactly when its models are, and be as they are."""
        self.notify()
        if self._is_refreshing:
            return
        self._is_refreshing = True
        # An ensemble in an ensemble changes what the outer one is: at most once for each level.
        for _ in range(len(self._loaded)):
            if not [model for model in list(self._loaded) if self._look_at(model)]:
                break
        self._is_refreshing = False

    def related(self, name: str) -> list[str]:
        """Return the loaded ensembles that need the model `name`, at any depth, and if it is one itself, the models that nobody
        else needs then.
        """
        needs: dict[str, set[str]] = {}
        for model in self._loaded:
            # Ensembles of several namespaces may have one name, and a reload has two versions of one.
            needs.setdefault(model.plan.name, set()).update(step.model_name for step in _steps(model))
        gone = {name}
        while more := {user for user, used in needs.items() if used & gone} - gone:
            gone |= more
        parts = set(needs.get(name, ()))
        while deeper := {part for used in (needs.get(part, set()) for part in parts) for part in used} - parts:
            parts |= deeper
        while kept := {part for part in parts if any(part in used for user, used in needs.items() if user not in gone | parts)}:
            parts -= kept
            parts -= {part for user in kept for part in needs.get(user, ())}
        return sorted((gone | parts) - {name})

    def parts(self, name: str) -> set[str]:
        """Return the models of the steps of a loaded ensemble, nothing for other models."""
        return {step.model_name for model in self._loaded if model.plan.name == name for step in _steps(model)}

    async def _are_members_ready(self, model: Model) -> bool:
        members = [self._find(model, step) for step in _steps(model)]
        return all(await asyncio.gather(*(_is_ready(member) for member in members)))

    def _find(self, model: Model, step: StepPlan) -> Model | None:
        try:
            return self._table.look_up_from(model.namespace, step.model_name, step.version)
        except InferenceServerError:
            return None  # It isn't loaded, for whatever reason.

    def _look_at(self, model: Model) -> bool:
        """Make one ensemble what its models are now; return whether that changed anything."""
        before = (self._loaded[model], model.unready_reason, model.refusal)
        name = model.plan.name
        members = [self._find(model, step) for step in _steps(model)]
        absent = sorted({step.model_name for step, member in zip(_steps(model), members) if member is None})
        if absent:
            model.set_unready(f"ensemble {name} contains models that are not available: {', '.join(absent)}")
        else:
            found = [member for member in members if member is not None]
            self._fit(model, found)
            unready = [member for member in found if member.unready_reason]
            problem = self._problems.get(model, "")
            if not problem and unready:
                why = "; ".join(f"{member.plan.name}: {member.unready_reason}" for member in unready)
                problem = f"ensemble {name} contains models that are not ready: {why}"
            is_lasting = model in self._problems or any(member.refusal for member in unready)
            model.set_unready(problem, is_lasting=is_lasting)
        return before != (self._loaded[model], model.unready_reason, model.refusal)

    def _fit(self, model: Model, members: list[Model]) -> None:
        """Make an ensemble fit its models if they aren't those that it fits already."""
        states = tuple(self._loaded.get(member, member.plan) for member in members)
        known = self._loaded[model].members
        if len(states) == len(known) and all(new is old for new, old in zip(states, known)):
            return
        self._loaded[model] = _Fit(states)
        if model.cached is not None:
            model.cached.renew()
        self._problems.pop(model, None)
        config = self._table.configs().get(key_of(model.namespace, model.plan.name))
        findings = list(wiring_findings(config, self._known(model.namespace))) if config is not None else []
        if findings:
            texts = "; ".join(finding.text for finding in findings)
            self._problems[model] = f"its steps' models have changed and no longer fit: {texts}"
            return
        plan = fitted(model.plan, [member.plan for member in members])
        if config is not None and config.model_transaction_policy.decoupled != plan.is_decoupled:
            config.model_transaction_policy.decoupled = plan.is_decoupled
        model.plan = plan
        _scheduler(model).plan = plan


def _steps(model: Model) -> tuple[StepPlan, ...]:
    return () if model.plan.ensemble is None else model.plan.ensemble.steps


def _scheduler(model: Model) -> EnsembleScheduler:
    assert isinstance(model.scheduler, EnsembleScheduler)
    return model.scheduler


async def _is_ready(model: Model | None) -> bool:
    return model is not None and await model.check_ready()


def _set_decoupled(config: Any, known: KnownModels) -> None:
    """An ensemble is decoupled exactly when a model of its steps is, whatever its own config says."""
    members = [known.configs[step.model_name] for step in config.ensemble_scheduling.step]
    is_decoupled = any(member.model_transaction_policy.decoupled for member in members)
    if config.model_transaction_policy.decoupled != is_decoupled:
        config.model_transaction_policy.decoupled = is_decoupled
