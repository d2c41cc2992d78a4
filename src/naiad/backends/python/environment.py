"""Which environment a model runs in: the one that its config names, one made for its requirements, or the server's own.

Owns that choice. Archives are unpacked in `archive`, requirements installed in `requirements`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from naiad.backends.python import archive, parameters, requirements
from naiad.backends.python.interpreter import check_interpreter, interpreter_in, variables_of
from naiad.backends.python.settings import ALLOW_REQUIREMENTS, EnvironmentSettings
from naiad.errors import InferenceServerError, invalid_argument, not_found

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
BACKEND_ARCHIVE = "pb_exec_env_model.py.tar.gz"

_log = logging.getLogger("naiad.backends.python")


@dataclass(frozen=True, slots=True)
class EnvironmentSource:
    """Where a model's environment may come from. `path` is the config's parameter, "" when it has none.

    `backend_directory` is the folder of the Python-based backend, None for a model with a file of its own.
    """

    model_name: str
    model_directory: Path
    version_directory: Path
    path: str
    backend_directory: Path | None


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter and the variables that a process of it gets, beside the server's. `is_own`: the server's interpreter."""

    interpreter: Path
    is_own: bool
    variables: Mapping[str, str] = field(default_factory=dict)


def choose_environment(source: EnvironmentSource, settings: EnvironmentSettings) -> Environment:
    """Return the environment of a model, made when it has to be; blocking. Raises InferenceServerError naming the model."""
    try:
        folder = _folder(source, settings)
        return Environment(Path(sys.executable), is_own=True) if folder is None else _environment_in(folder)
    except InferenceServerError as error:
        raise InferenceServerError(error.code, f"model '{source.model_name}': {error.message}", error.reason) from error


def _folder(source: EnvironmentSource, settings: EnvironmentSettings) -> Path | None:
    """Return the folder of the environment, None for the server's own."""
    file = _requirements_file(source)
    path = _named_path(source)
    if path is not None:
        if file is not None:
            _log.info("model '%s': '%s' isn't used, the model has its environment '%s'", source.model_name, file, path)
        return _unpacked(path, settings)
    if file is None:
        return None
    if not settings.allows_requirements:
        _log.warning(
            "model '%s': '%s' isn't used; start the server with --%s=true to install what it lists",
            source.model_name,
            file,
            ALLOW_REQUIREMENTS,
        )
        return None
    return requirements.installed(file, settings)


def _named_path(source: EnvironmentSource) -> Path | None:
    """Return the path that the config names, or else the backend's archive."""
    text = source.path
    if "://" in text:
        raise invalid_argument(f"parameter '{parameters.ENVIRONMENT}' is '{text}', must be a path on this machine")
    if text == MODEL_DIRECTORY or text.startswith(f"{MODEL_DIRECTORY}/"):
        text = str(source.model_directory) + text[len(MODEL_DIRECTORY) :]
    if text:
        return source.model_directory / text
    if source.backend_directory is not None and (source.backend_directory / BACKEND_ARCHIVE).exists():
        return source.backend_directory / BACKEND_ARCHIVE
    return None


def _requirements_file(source: EnvironmentSource) -> Path | None:
    own = (source.version_directory, source.model_directory)
    folders = own if source.backend_directory is None else (source.backend_directory,)
    files = (folder / requirements.FILE_NAME for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _unpacked(path: Path, settings: EnvironmentSettings) -> Path:
    if path.is_dir():
        return path.absolute()
    if not path.exists():
        raise not_found(f"the environment '{path}' does not exist")
    return archive.unpacked(path, settings)


def _environment_in(folder: Path) -> Environment:
    interpreter = interpreter_in(folder)
    if interpreter is None:
        raise invalid_argument(
            f"the environment '{folder}' has no interpreter: an archive made by conda-pack, an environment's folder or a venv "
            "has bin/python"
        )
    variables = variables_of(folder)
    check_interpreter(interpreter, variables)
    return Environment(interpreter, is_own=False, variables=variables)
