"""The Python backend, and those based on it: what a worker process runs for a model.

Owns the choice of the model's file. The interpreter is chosen in `environment`; starting the process isn't this package's work.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import ClassVar

from naiad.backends.base import ModelFiles, WorkerProgram
from naiad.backends.python import parameters
from naiad.backends.python.environment import EnvironmentSource, choose_environment
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import InferenceServerError, invalid_argument, not_found

MODEL_FILE = "model.py"

_STUB_FILE = "triton_python_backend_stub"

_log = logging.getLogger("naiad.backends.python")


class PythonBackend:
    """Models that are Python files of their own.

    Subclasses are Python-based backends: their models are data for the `model.py` in `backend_directory`. With
    `is_by_runtime`, a `model.py` in the version's or the model's folder goes before that one.
    """

    name: ClassVar[str] = "python"
    is_isolated: ClassVar[bool] = True
    default_instance_count: ClassVar[int] = 1
    backend_directory: ClassVar[Path | None] = None
    is_by_runtime: ClassVar[bool] = False

    @classmethod
    def program(cls, files: ModelFiles) -> WorkerProgram:
        """See `WorkerBackend.program`. It may make an environment, which takes as long as pip takes.

        Raises InferenceServerError: NOT_FOUND for a missing file, INVALID_ARGUMENT for a wrong parameter or environment,
        UNAVAILABLE when an environment can't be made.
        """
        parameters.check(files)
        version_directory = _version_directory(files)
        model_file = cls._model_file(files, version_directory)
        backend_directory = cls.backend_directory if model_file.parent == cls.backend_directory else None
        _tell_of_stub(files)
        source = EnvironmentSource(
            files.model_name,
            files.directory,
            version_directory,
            files.parameters.get(parameters.ENVIRONMENT, ""),
            backend_directory,
        )
        environment = choose_environment(source, EnvironmentSettings.of(files.settings))
        return WorkerProgram(
            environment.interpreter,
            environment.is_own,
            environment.variables,
            model_file,
            files.directory,
            version_directory,
            backend_directory,
        )

    @classmethod
    def _model_file(cls, files: ModelFiles, version_directory: Path) -> Path:
        shared = [] if cls.backend_directory is None else [cls.backend_directory / MODEL_FILE]
        if cls.is_by_runtime:
            candidates = [version_directory / MODEL_FILE, files.directory / MODEL_FILE, *shared]
        else:
            candidates = shared or [files.path]
        found = next((path for path in candidates if path.is_file()), None)
        if found is None:
            raise _missing(files.model_name, candidates)
        return found


def python_based(backend_name: str, folder: Path) -> type[PythonBackend]:
    """Return the backend called `backend_name`, whose models all run `folder`/model.py."""

    class PythonBasedBackend(PythonBackend):
        """See `PythonBackend`."""

        name = backend_name
        backend_directory = folder

    return PythonBasedBackend


def python_by_runtime(backend_name: str, folder: Path | None) -> type[PythonBackend]:
    """Return the backend called `backend_name` for models whose config asks for the runtime `model.py`."""

    class PythonByRuntimeBackend(PythonBackend):
        """See `PythonBackend`."""

        name = backend_name
        backend_directory = folder
        is_by_runtime = True

    return PythonByRuntimeBackend


def _missing(model_name: str, candidates: list[Path]) -> InferenceServerError:
    if len(candidates) == 1:
        return not_found(f"model '{model_name}': there is no model file '{candidates[0]}'")
    searched = ", ".join(f"'{path}'" for path in candidates)
    return not_found(f"unable to find backend library '{MODEL_FILE}' for model '{model_name}', searched: {searched}")


def _version_directory(files: ModelFiles) -> Path:
    """Return the folder in the model's folder that the path of its file begins with; a single file has none but its own."""
    try:
        first = files.path.relative_to(files.directory).parts[0]
    except (ValueError, IndexError) as error:
        raise invalid_argument(
            f"model '{files.model_name}': its file '{files.path}' isn't in a version folder of '{files.directory}'"
        ) from error
    folder = files.directory / first
    return folder if folder.is_dir() else files.directory


def _tell_of_stub(files: ModelFiles) -> None:
    stub = files.directory / _STUB_FILE
    if stub.exists():
        _log.info(
            "model '%s': '%s' isn't used; a model names another Python with the parameter %s",
            files.model_name,
            stub,
            parameters.ENVIRONMENT,
        )
