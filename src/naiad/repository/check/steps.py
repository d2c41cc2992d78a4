"""The way of one model from its file to its plans, as `repository.loader` goes it, but on past mistakes, to find them all.

Owns that order. Loads models of backends in this process once, to hear what they say to the config, and lets go of them again;
runs a user's code only if it is given workers to run it in; otherwise what `auto_complete_config` adds stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from naiad.backends.base import Backend, ModelFiles, WorkerBackend
from naiad.backends.table import AnyBackend, BackendTable
from naiad.config import autocomplete, backend_name, compile, json_form, pbtxt, positions, validate
from naiad.config.findings import FieldPath, Finding, MistakesError
from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, invalid_argument
from naiad.execution.process.life.death import WorkerIdentity
from naiad.proto import message_class
from naiad.repository import versions
from naiad.repository.agents.table import AgentTable
from naiad.repository.check.model import CheckedModel, Stage
from naiad.repository.layout import ModelSource, Naming
from naiad.repository.loader import DEFAULT_MAX_BATCH_SIZE_SETTING, LoadSettings, is_isolated
from naiad.repository.strategies.files import strategy_file
from naiad.repository.strategies.importing import load_strategy
from naiad.repository.workers import WorkerLoader

FROM_FILE = "file"
FROM_FOLDER = "name of the folder"
FROM_FILE_NAME = "name of the model file"
FROM_MODEL = "auto-complete from the model file"
FROM_CODE = "auto_complete_config of the model"
FROM_DEFAULTS = "default"


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How to check: as a server with these backends and settings would load. `workers` may run the code of Python models; None:
    it isn't run. `naming` says which models and configs there are.
    """

    backends: BackendTable
    loading: LoadSettings
    workers: WorkerLoader | None = None
    naming: Naming = field(default_factory=Naming)


def check_source(source: ModelSource, settings: CheckSettings) -> CheckedModel:
    """Return what there is to say of one model; ensembles are to be compared with their steps' models afterwards. Blocking."""
    return _Check(source, settings).run()


class _Check:
    """One model's check."""

    def __init__(self, source: ModelSource, settings: CheckSettings) -> None:
        self._model = CheckedModel(source)
        self._source = source
        self._backends = settings.backends
        self._settings = settings.loading
        self._workers = settings.workers

    def run(self) -> CheckedModel:
        model = self._model
        try:
            config = self._read()
        except InferenceServerError as error:
            for line in error.message.split("\n"):
                # The readers put the file in front of each mistake; the line before them counts them.
                if line.startswith(model.place) or "\n" not in error.message:
                    model.add_error(Finding(line))
            return model
        model.config = config
        self._keep(FROM_FILE)
        self._name(config)
        self._agents(config)
        chosen = self._versions(config)
        directory = self._source.versions[chosen[-1]] if chosen else self._source.directory
        backend = self._backend(config, directory)
        self._complete(config, backend, directory)
        self._settings.normalise(config, backend)
        self._keep(FROM_DEFAULTS)
        self._validate(config)
        if not model.errors:
            for finding in validate.unserved_traffic(config, chosen):
                model.add_warning(finding)
            self._compile(config, backend, chosen)
        return model

    def _read(self) -> Any:
        if self._source.problem:
            raise invalid_argument(self._source.problem)
        path = self._source.config_file
        if path is None:
            if not self._settings.is_auto_complete:
                raise invalid_argument(f"model configuration is not provided for model '{self._source.name}'")
            return message_class("inference.ModelConfig")()
        text = pbtxt.read_text(path)
        config = pbtxt.parse_config(text, str(path))
        self._model.positions = positions.field_positions(text)
        return config

    def _keep(self, origin: str) -> None:
        copy = message_class("inference.ModelConfig")()
        copy.CopyFrom(self._model.config)
        self._model.stages.append(Stage(origin, copy))

    def _name(self, config: Any) -> None:
        source = self._source
        if source.file_name:
            config.default_model_filename = source.file_name
        config.name = config.name or source.name
        if config.name != source.name:
            text = f"unexpected directory name '{source.name}' for model '{config.name}', directory name must equal model name"
            self._model.add_error(Finding(text, ("name",), f"set name to '{source.name}' or remove it"))
        self._keep(FROM_FOLDER)

    def _agents(self, config: Any) -> None:
        source = self._source
        try:
            directory, agents = AgentTable().run(source.name, source.directory, config)
            # Nothing is loaded here: agents clean up.
            agents.load_fail()
        except InferenceServerError as error:
            self._error(error, ("model_repository_agents",))
            return
        if directory != source.directory:
            text = f"repository agents hand over the folder '{directory}': what lies there isn't checked"
            self._model.add_warning(Finding(text, ("model_repository_agents",)))

    def _versions(self, config: Any) -> tuple[int, ...]:
        try:
            return versions.select(config, self._source.versions)
        except InferenceServerError as error:
            self._error(error, ("version_policy",), "make a folder 1 with the model's file in it")
            return ()

    def _backend(self, config: Any, directory: Path) -> AnyBackend | None:
        try:
            backend_name.infer_backend(config, directory, self._source.name)
            self._keep(FROM_FILE_NAME)
            if not config.backend:
                return None
            return self._backends.find_for(config.backend, config.runtime, (directory, self._source.directory))
        except InferenceServerError as error:
            self._error(error, ("backend",))
            return None

    def _complete(self, config: Any, backend: AnyBackend | None, directory: Path) -> None:
        if backend is None or not self._settings.is_auto_complete:
            return
        try:
            files = self._files(config, directory, backend)
            if is_isolated(backend):
                self._complete_by_code(config, cast("type[WorkerBackend]", backend), files, directory)
            elif not (config.input and config.output):
                self._complete_by_file(config, cast("type[Backend]", backend), files)
        except Exception as error:
            # A file or code of others may fail in any way; the other models are still to be checked.
            self._error(error, ("max_batch_size",) if "max_batch_size" in str(error) else ("backend",))

    def _complete_by_file(self, config: Any, backend: type[Backend], files: ModelFiles) -> None:
        signature = backend.signature(files)
        if signature is not None:
            for warning in autocomplete.complete(config, signature, self._default_batch_size(files)):
                self._model.add_warning(Finding(warning, ("max_batch_size",)))
            self._keep(FROM_MODEL)

    def _complete_by_code(self, config: Any, backend: type[WorkerBackend], files: ModelFiles, directory: Path) -> None:
        name = config.name
        if self._workers is None:
            text = f"auto_complete_config of model '{name}' isn't run here: what it adds isn't checked"
            self._model.add_warning(Finding(text, ("backend",), "naiad check --run-models runs it"))
            return
        identity = WorkerIdentity(name, directory.name, f"{name}_0")
        completed, worker = self._workers.complete(backend.program(files), json_form.to_json(config), identity)
        self._workers.discard(worker)
        config.CopyFrom(json_form.from_json(completed, f"what auto_complete_config of model '{name}' returned"))
        self._keep(FROM_CODE)

    def _default_batch_size(self, files: ModelFiles) -> int:
        text = files.settings.get(DEFAULT_MAX_BATCH_SIZE_SETTING, str(autocomplete.DEFAULT_MAX_BATCH_SIZE))
        if not text.isascii() or not text.isdigit():
            raise invalid_argument(
                f"--backend-config {DEFAULT_MAX_BATCH_SIZE_SETTING} is '{text}', must be a whole number >= 0"
            )
        return int(text)

    def _files(self, config: Any, directory: Path, backend: AnyBackend) -> ModelFiles:
        return ModelFiles(
            config.name,
            directory / config.default_model_filename,
            {name: parameter.string_value for name, parameter in config.parameters.items()},
            self._settings.of_backend(backend.name),
            self._source.directory,
        )

    def _validate(self, config: Any) -> None:
        model = self._model
        is_ensemble = config.HasField("ensemble_scheduling")
        is_backend_unknown = bool(model.errors) and not (config.backend or config.platform or is_ensemble)
        for finding in validate.all_findings(config, self._source.name, gpus=self._settings.devices.gpus):
            # Without a backend the step before has said why, and the platform says it no better.
            if not (is_backend_unknown and finding.path == ("platform",)):
                model.add_error(finding)
        for name in compile.unused_fields(config):
            path = next((path for path in model.positions if _names(path)[: name.count(".") + 1] == name.split(".")), ())
            model.add_warning(Finding(f"field '{name}' has no effect in this build", path))
        for index, text in compile.unknown_policies(config, self._settings.devices.policies):
            model.add_warning(Finding(text, ("instance_group", index, "host_policy")))

    def _try(self, refuse: Callable[[Any], None], config: Any, path: FieldPath) -> None:
        try:
            refuse(config)
        except InferenceServerError as error:
            self._error(error, path)

    def _compile(self, config: Any, backend: AnyBackend | None, chosen: tuple[int, ...]) -> None:
        """Make the plans; whether the model's file fits them is its backend's to say."""
        source = self._source
        try:
            for version in chosen:
                directory = source.versions[version]
                plan = compile.compile_plan(config, version=version, directory=source.directory, version_directory=directory)
                self._model.plans.append(plan)
                if not source.file_name:
                    # Its code runs only where the code of models may.
                    _ = strategy_file(plan) if self._workers is None else load_strategy(plan)
                if backend is not None:
                    _try_model(backend, plan, self._files(config, directory, backend))
        except Exception as error:
            # Whatever a backend raises is the answer that is looked for.
            self._model.plans.clear()
            self._error(error)

    def _error(self, error: Exception, path: FieldPath = (), advice: str = "") -> None:
        if isinstance(error, MistakesError):
            for finding in error.findings:
                self._model.add_error(replace(finding, path=finding.path or path, advice=finding.advice or advice))
            return
        text = error.message if isinstance(error, InferenceServerError) else f"{type(error).__name__}: {error}"
        self._model.add_error(Finding(text, path, advice))


def _try_model(backend: AnyBackend, plan: ModelPlan, files: ModelFiles) -> None:
    """Load one copy, or see that there is a program where loading would run it. Raises what the backend raises."""
    if not is_isolated(backend):
        cast("type[Backend]", backend).load(plan.for_backend(), plan.instances[0], files).close()
    elif backend.name == "python" and not files.path.is_file():
        raise invalid_argument(f"model '{plan.name}' version {plan.version}: there is no file {files.path}")


def _names(path: FieldPath) -> list[str]:
    return [part for part in path if isinstance(part, str)]
