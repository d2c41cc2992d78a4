"""From a model's folder to loaded copies: config, completion, checks, plan, backend.

Owns that order. Blocking: it runs on a loading thread and touches nothing of the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad.backends.base import Backend, BackendInstance, ModelFiles
from naiad.backends.table import BackendTable
from naiad.config import autocomplete, backend_name, compile, pbtxt, validate
from naiad.config.defaults import normalise
from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, invalid_argument
from naiad.proto import message_class
from naiad.repository import versions
from naiad.repository.layout import ModelSource
from naiad.repository.model import LoadedVersion

DEFAULT_MAX_BATCH_SIZE_SETTING = "default-max-batch-size"

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What the operator says about loading. `backend_settings` is by backend name, "" holds those of all backends."""

    is_auto_complete: bool
    backend_settings: Mapping[str, Mapping[str, str]]

    def of_backend(self, name: str) -> dict[str, str]:
        """Return the settings of one backend, over those of all."""
        return {**self.backend_settings.get("", {}), **self.backend_settings.get(name, {})}


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model whose config is complete and checked: what each of its versions is loaded from."""

    source: ModelSource
    config: Any
    backend: type[Backend]
    settings: Mapping[str, str]
    versions: tuple[int, ...]


class Loader:
    """Loads models; safe on several threads at once."""

    def __init__(self, backends: BackendTable, settings: LoadSettings) -> None:
        self._backends = backends
        self._settings = settings

    def prepare(self, source: ModelSource) -> PreparedModel:
        """Read, complete and check a model's config. Raises InferenceServerError with what to mend."""
        config = self._read(source)
        chosen = versions.select(config, source.versions)
        directory = source.versions[chosen[-1]]
        backend_name.infer_backend(config, directory, source.name)
        validate.validate_general(config, source.name)
        backend = self._backends.find(config.backend)
        settings = self._settings.of_backend(backend.name)
        if self._settings.is_auto_complete:
            self._complete(config, backend, _files(config, directory, settings))
        normalise(config, default_instance_count=backend.default_instance_count)
        validate.validate(config, source.name)
        unused = compile.unused_fields(config)
        if unused:
            _log.warning("model '%s': these config fields have no effect in this build: %s", source.name, ", ".join(unused))
        return PreparedModel(source, config, backend, settings, chosen)

    def load(self, prepared: PreparedModel, version: int) -> LoadedVersion:
        """Load every instance of one version. Raises InferenceServerError; what was loaded before the failure is closed."""
        began = time.monotonic()
        source = prepared.source
        directory = source.versions[version]
        plan = compile.compile_plan(prepared.config, version=version, directory=source.directory, version_directory=directory)
        files = _files(prepared.config, directory, prepared.settings)
        instances: list[BackendInstance] = []
        try:
            for instance in plan.instances:
                instances.append(prepared.backend.load(plan, instance, files))  # noqa: PERF401 — a failure closes the others
        except Exception as error:
            for loaded in instances:
                loaded.close()
            raise _load_error(error, plan) from error
        return LoadedVersion(plan, prepared.backend, instances, time.monotonic() - began)

    def _read(self, source: ModelSource) -> Any:
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
            raise invalid_argument(
                f"unexpected directory name '{source.name}' for model '{config.name}', directory name must equal model name"
            )
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


def _files(config: Any, version_directory: Path, settings: Mapping[str, str]) -> ModelFiles:
    return ModelFiles(
        config.name,
        version_directory / config.default_model_filename,
        {name: parameter.string_value for name, parameter in config.parameters.items()},
        settings,
    )


def _load_error(error: Exception, plan: ModelPlan) -> InferenceServerError:
    if isinstance(error, InferenceServerError):
        return error
    return invalid_argument(f"model '{plan.name}' version {plan.version} can't be loaded: {type(error).__name__}: {error}")
