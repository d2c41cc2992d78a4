"""From a model's folder to loaded copies: config, completion, checks, plan, backend.

Owns that order. Blocking: it runs on a loading thread and touches nothing of the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from naiad.backends.base import Backend, BackendInstance, ModelFiles, WorkerBackend
from naiad.backends.table import AnyBackend, BackendTable
from naiad.config import autocomplete, backend_name, compile, json_form, pbtxt, validate
from naiad.config.compile.warmup import skipped_samples
from naiad.config.defaults import normalise
from naiad.config.findings import Finding, about, refuse
from naiad.config.plain_file import check_plain_or_folder
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.validate.instances import instance_findings
from naiad.devices.affinity import bound
from naiad.devices.devices import ANY_CPU, Devices
from naiad.errors import InferenceServerError, invalid_argument
from naiad.execution.process.life.death import WorkerIdentity
from naiad.execution.process.limits import limits_of
from naiad.execution.tensors import BatchTensors
from naiad.execution.warm_up import run_samples
from naiad.proto import message_class
from naiad.repository import versions
from naiad.repository.agents.lifecycle import AgentLifecycle
from naiad.repository.agents.table import AgentTable
from naiad.repository.layout import ModelSource, moved
from naiad.repository.loading.mistake_places import with_places
from naiad.repository.loading.trial import Trial, Trials
from naiad.repository.model import Copies, LoadedVersion, LoadedWorkers
from naiad.repository.strategies.importing import load_strategy
from naiad.repository.workers import Spare, WorkerLoader

DEFAULT_MAX_BATCH_SIZE_SETTING = "default-max-batch-size"

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What the operator says about loading. `backend_settings` is by backend name, "" holds those of all backends."""

    is_auto_complete: bool
    backend_settings: Mapping[str, Mapping[str, str]]
    devices: Devices = field(default_factory=Devices)

    def normalise(self, config: Any, backend: AnyBackend | None) -> None:
        """Fill in what the config leaves open, as it is for `backend` (None: not known) on these devices."""
        count = backend.default_instance_count if backend else 1
        devices = self.devices
        normalise(
            config,
            default_instance_count=count,
            gpus=devices.gpus,
            is_auto_gpu=_takes_gpus(backend),
            free_memory=devices.free_gpu_memory,
        )

    def of_backend(self, name: str) -> dict[str, str]:
        """Return the settings of one backend, over those of all."""
        return {**self.backend_settings.get("", {}), **self.backend_settings.get(name, {})}

    def foreseen_instances(self, config: Any, backend: AnyBackend) -> tuple[InstancePlan, ...]:
        """Return the instances that a config which isn't complete will have, none when its groups are wrong."""
        copied = type(config)()
        copied.CopyFrom(config)
        self.normalise(copied, backend)
        is_wrong = any(instance_findings(copied, self.devices.gpus))
        return () if is_wrong else compile.instance_plans(copied)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model whose config is complete and checked: what each of its versions is loaded from.

    `spare` holds at most one worker: that which has completed the config. `seconds` is how long the preparation took. `agents`
    have looked at the model and wait to hear how the load ends. An ensemble has no `backend`.
    """

    source: ModelSource
    config: Any
    backend: AnyBackend | None
    settings: Mapping[str, str]
    versions: tuple[int, ...]
    spare: list[Spare] = field(default_factory=list)
    seconds: float = 0.0
    agents: AgentLifecycle = field(default_factory=AgentLifecycle)


class PreparationError(InferenceServerError):
    """Why a model can't be loaded, and the versions that would have been."""

    def __init__(self, error: InferenceServerError, versions: tuple[int, ...]) -> None:
        super().__init__(error.code, error.message)
        self.versions = versions


class Loader:
    """Loads models; safe on several threads at once."""

    def __init__(
        self,
        backends: BackendTable,
        settings: LoadSettings,
        workers: WorkerLoader,
        agents: AgentTable | None = None,
        trials: Trials | None = None,
    ) -> None:
        self._backends = backends
        self._agents = agents or AgentTable()
        self._settings = settings
        self._workers = workers
        self._trials = trials

    def prepare(self, source: ModelSource) -> PreparedModel:
        """Read, complete and check a model's config.

        Raises InferenceServerError with what to mend, a PreparationError when it is known which versions are meant.
        """
        began = time.monotonic()
        try:
            config = self._read(source)
            with about(("model_repository_agents",)):
                directory, agents = self._agents.run(source.name, source.directory, config)
        except InferenceServerError as error:
            raise with_places(error, source) from error
        try:
            if directory != source.directory:
                source = moved(source, directory)
                config = self._read(source)
            prepared = self._prepare_versions(source, config, began)
        except BaseException:
            agents.load_fail()
            raise
        return replace(prepared, agents=agents)

    def _prepare_versions(self, source: ModelSource, config: Any, began: float) -> PreparedModel:
        chosen: tuple[int, ...] = ()
        try:
            with about(("version_policy",)):
                chosen = versions.select(config, source.versions)
            return self._prepare(source, config, chosen, began)
        except InferenceServerError as error:
            raise PreparationError(with_places(error, source), chosen) from error

    def _prepare(self, source: ModelSource, config: Any, chosen: tuple[int, ...], began: float) -> PreparedModel:
        directory = source.versions[chosen[-1]]
        with about(("backend",)):
            backend_name.infer_backend(config, directory, source.name)
            validate.validate_general(config, source.name)
        if config.HasField("ensemble_scheduling"):
            return _prepared_ensemble(source, config, chosen, began)
        with about(("backend",)):
            backend = self._backends.find_for(config.backend, config.runtime, (directory, source.directory))
        settings = self._settings.of_backend(backend.name)
        if self._trials is not None and not is_isolated(backend) and not self._backends.is_own(backend.name):
            self._trials.run(self._trial(source, config))
        spare: list[Spare] = []
        if self._settings.is_auto_complete:
            files = _files(config, source, directory, settings)
            if is_isolated(backend):
                config = self._complete_in_worker(config, cast("type[WorkerBackend]", backend), files, chosen[-1], spare)
            else:
                self._complete(config, cast("type[Backend]", backend), files)
        try:
            self._settings.normalise(config, backend)
            validate.validate(config, source.name, gpus=self._settings.devices.gpus)
        except Exception:
            self._discard(spare)
            raise
        for name in skipped_samples(config):
            _log.info("model '%s': warm-up sample '%s' has batch_size 0 and isn't run", source.name, name)
        _warn_of_unused(config, source.name)
        for finding in validate.unserved_traffic(config, chosen):
            _log.warning("%s", finding.text)
        for _, text in compile.unknown_policies(config, self._settings.devices.policies):
            _log.warning("%s", text)
        return PreparedModel(source, config, backend, settings, chosen, spare, time.monotonic() - began)

    def load(self, prepared: PreparedModel, version: int) -> LoadedVersion:
        """Load every instance of one version. Raises InferenceServerError; what was loaded before the failure is closed."""
        try:
            return self._load(prepared, version)
        except InferenceServerError as error:
            raise with_places(error, prepared.source) from error
        finally:
            if version == prepared.versions[-1]:
                self._discard(prepared.spare)

    def load_first(self, prepared: PreparedModel) -> None:
        """Load the first instance of each version, to see whether that can be done. Raises as `load` does."""
        for version in prepared.versions:
            plan = self.plan(prepared, version)
            files = _files(prepared.config, prepared.source, prepared.source.versions[version], prepared.settings)
            self.close(self._load_copies(prepared, plan, plan.instances[:1], files))

    def _trial(self, source: ModelSource, config: Any) -> Trial:
        tried = message_class("inference.ModelConfig")()
        tried.CopyFrom(config)
        # They have looked at the model already.
        tried.ClearField("model_repository_agents")
        return Trial(
            source.name,
            source.directory,
            source.versions,
            source.file_name,
            tried.SerializeToString(),
            self._settings.is_auto_complete,
            self._settings.backend_settings,
            self._settings.devices.gpus.min_capability,
        )

    def _load(self, prepared: PreparedModel, version: int) -> LoadedVersion:
        began = time.monotonic()
        if version == prepared.versions[-1]:
            began -= prepared.seconds
        source = prepared.source
        plan = self.plan(prepared, version)
        files = _files(prepared.config, source, source.versions[version], prepared.settings)
        strategy = None if source.file_name else load_strategy(plan)
        copies = self._load_copies(prepared, plan, plan.instances, files)
        return LoadedVersion(plan, prepared.backend, copies, files, time.monotonic() - began, strategy=strategy)

    def plan(self, prepared: PreparedModel, version: int) -> ModelPlan:
        """Return the plan of one version."""
        source = prepared.source
        return compile.compile_plan(
            prepared.config, version=version, directory=source.directory, version_directory=source.versions[version]
        )

    def plan_only(self, prepared: PreparedModel, version: int) -> LoadedVersion:
        """Return a version without copies, which `load_more` loads. Raises InferenceServerError."""
        plan = self.plan(prepared, version)
        source = prepared.source
        files = _files(prepared.config, source, source.versions[version], prepared.settings)
        copies: Copies = []
        if is_isolated(prepared.backend):
            program = cast("type[WorkerBackend]", prepared.backend).program(files)
            copies = LoadedWorkers(program, limits_of(plan.parameters, plan.name), [])
        strategy = None if source.file_name else load_strategy(plan)
        return LoadedVersion(plan, prepared.backend, copies, files, 0.0, is_parked=True, strategy=strategy)

    def load_more(self, prepared: PreparedModel, plan: ModelPlan, added: Sequence[InstancePlan], files: ModelFiles) -> Copies:
        """Load further instances of a version that is loaded already, with its `files`. Raises as `load` does."""
        return self._load_copies(prepared, plan, added, files)

    def close(self, copies: Copies) -> None:
        """Give back what was loaded and isn't put to work."""
        if isinstance(copies, LoadedWorkers):
            self._workers.close(copies.started)
        else:
            for instance in copies:
                instance.close()

    def abandon(self, prepared: PreparedModel) -> None:
        """As `release`, for what nobody waits for any more: its agents hear that, too."""
        self._discard(prepared.spare)
        prepared.agents.load_fail()

    def release(self, prepared: PreparedModel) -> None:
        """End what the preparation has started and no version has taken."""
        self._discard(prepared.spare)

    def stop(self) -> None:
        """Cut short what starts in worker processes, since the server ends. Loop thread only."""
        self._workers.stop()
        if self._trials is not None:
            self._trials.stop()

    def give_up(self, thread_id: int) -> None:
        """Cut short what a thread loads, if it can be: what waits for a process. Loop thread only."""
        self._workers.give_up(thread_id)
        if self._trials is not None:
            self._trials.give_up(thread_id)

    def _load_copies(
        self, prepared: PreparedModel, plan: ModelPlan, instances: Sequence[InstancePlan], files: ModelFiles
    ) -> Copies:
        plan = plan.for_backend()
        if prepared.backend is None:
            return []
        if is_isolated(prepared.backend):
            return self._load_workers(prepared, plan, instances, files)
        return self._load_instances(cast("type[Backend]", prepared.backend), plan, instances, files)

    def _load_instances(
        self, backend: type[Backend], plan: ModelPlan, instances: Sequence[InstancePlan], files: ModelFiles
    ) -> list[BackendInstance]:
        copies: list[BackendInstance] = []
        try:
            for instance in instances:
                # What threads the engine starts belong to the instance.
                with bound(self._settings.devices.cpus_of(instance.host_policy)):
                    copies.append(backend.load(plan, instance, files))
                if plan.warmup:
                    tensors = BatchTensors(plan, may_omit_outputs=getattr(backend, "may_omit_outputs", False))
                    run_samples(copies[-1], plan, tensors)
        except Exception as error:
            for copy in copies:
                copy.close()
            raise _load_error(error, plan) from error
        return copies

    def _load_workers(
        self, prepared: PreparedModel, plan: ModelPlan, instances: Sequence[InstancePlan], files: ModelFiles
    ) -> LoadedWorkers:
        backend = cast("type[WorkerBackend]", prepared.backend)
        limits = limits_of(plan.parameters, plan.name)
        first = self._workers.share_of(plan.instances, instances[0])
        # A worker is bound when it starts, so one that was started with another share can't be used.
        if prepared.spare and (prepared.spare[0].version, prepared.spare[0].share) == (plan.version, first):
            spare = prepared.spare.pop()
            program, worker = spare.program, spare.worker
        else:
            program, worker = backend.program(files), None
        return LoadedWorkers(program, limits, self._workers.start(program, plan, instances, worker))

    def _discard(self, spare: list[Spare]) -> None:
        while spare:
            self._workers.discard(spare.pop().worker)

    def _complete_in_worker(
        self, config: Any, backend: type[WorkerBackend], files: ModelFiles, version: int, spare: list[Spare]
    ) -> Any:
        """Return the config as the model's own code completes it; the worker that did it comes into `spare`."""
        name = config.name
        instances = self._settings.foreseen_instances(config, backend)
        # The worker becomes the first instance, and is called so from its start.
        identity = WorkerIdentity(name, str(version), instances[0].name if instances else f"{name}_0")
        share = self._workers.share_of(instances, instances[0]) if instances else ANY_CPU
        program = backend.program(files)
        completed, worker = self._workers.complete(program, json_form.to_json(config), identity, share)
        try:
            config = json_form.from_json(completed, f"what auto_complete_config of model '{name}' returned")
        except Exception:
            self._workers.discard(worker)
            raise
        spare.append(Spare(version, program, worker, share))
        return config

    def _read(self, source: ModelSource) -> Any:
        if source.problem:
            raise invalid_argument(source.problem)
        if source.config is not None:
            config = message_class("inference.ModelConfig")()
            config.CopyFrom(source.config)
        elif source.config_file is not None:
            config = pbtxt.read_config(source.config_file)
        elif self._settings.is_auto_complete:
            config = message_class("inference.ModelConfig")()
        else:
            raise invalid_argument(f"model configuration is not provided for model '{source.name}'")
        if source.file_name:
            config.default_model_filename = source.file_name
        config.name = config.name or source.name
        if config.name != source.name:
            text = f"unexpected directory name '{source.name}' for model '{config.name}', directory name must equal model name"
            refuse([Finding(text, ("name",))])
        return config

    def _complete(self, config: Any, backend: type[Backend], files: ModelFiles) -> None:
        is_given = bool(config.input) and bool(config.output)
        if is_given:
            return
        signature = backend.signature(files)
        if signature is None:
            return
        text = files.settings.get(DEFAULT_MAX_BATCH_SIZE_SETTING, "4")
        if not text.isascii() or not text.isdigit():
            raise invalid_argument(
                f"--backend-config {DEFAULT_MAX_BATCH_SIZE_SETTING} is '{text}', must be a whole number >= 0"
            )
        for warning in autocomplete.complete(config, signature, int(text)):
            _log.warning("%s", warning)


def _prepared_ensemble(source: ModelSource, config: Any, chosen: tuple[int, ...], began: float) -> PreparedModel:
    """Return an ensemble as far as its own config goes; what its steps' models say to it is `ensembles`'."""
    normalise(config, default_instance_count=1)
    validate.validate(config, source.name)
    _warn_of_unused(config, source.name)
    return PreparedModel(source, config, None, {}, chosen, [], time.monotonic() - began)


def _warn_of_unused(config: Any, name: str) -> None:
    unused = compile.unused_fields(config)
    if unused:
        _log.warning("model '%s': these config fields have no effect in this build: %s", name, ", ".join(unused))


def is_isolated(backend: AnyBackend | None) -> bool:
    """Return whether a backend's models live in worker processes: whether it is a `WorkerBackend`."""
    return bool(getattr(backend, "is_isolated", False))


def _takes_gpus(backend: AnyBackend | None) -> bool:
    """Return whether models of `backend` go on GPUs without being told to; see `Backend`."""
    takes_gpus: Callable[[], bool] | None = getattr(backend, "takes_gpus", None)
    return takes_gpus is not None and takes_gpus()


def _files(config: Any, source: ModelSource, version_directory: Path, settings: Mapping[str, str]) -> ModelFiles:
    path = version_directory / config.default_model_filename
    # Whoever opened a FIFO would wait for ever.
    check_plain_or_folder(path)
    return ModelFiles(
        config.name,
        path,
        {name: parameter.string_value for name, parameter in config.parameters.items()},
        settings,
        source.directory,
    )


def _load_error(error: Exception, plan: ModelPlan) -> InferenceServerError:
    if isinstance(error, InferenceServerError):
        return error
    return invalid_argument(f"model '{plan.name}' version {plan.version} can't be loaded: {type(error).__name__}: {error}")
