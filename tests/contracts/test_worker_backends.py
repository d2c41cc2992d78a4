"""Each backend of worker processes keeps the contract: a class each."""

from __future__ import annotations

from pathlib import Path

import environments
import pytest
from worker_backend_contract import WorkerBackendContract

from naiad.backends.base import ModelFiles
from naiad.backends.python.backend import PythonBackend, python_based, python_by_runtime
from naiad.server.functions.targets import FunctionInWorkerBackend


def _model(folder: Path, **parameters: str) -> ModelFiles:
    version = folder / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").touch()
    return ModelFiles("m", version / "model.py", parameters, directory=folder / "m")


class TestPython(WorkerBackendContract):
    backend = PythonBackend

    def example(self, folder: Path) -> ModelFiles:
        return _model(folder)


class TestPythonInAnEnvironment(WorkerBackendContract):
    backend = PythonBackend

    def example(self, folder: Path) -> ModelFiles:
        return _model(folder, EXECUTION_ENV_PATH=str(environments.make_venv(folder / "venv")))


class TestPythonBased(WorkerBackendContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "model.py").touch()
        self.backend = python_based("x", tmp_path / "x")

    def example(self, folder: Path) -> ModelFiles:
        return _model(folder)


class TestPythonByRuntime(WorkerBackendContract):
    backend = python_by_runtime("x", None)

    def example(self, folder: Path) -> ModelFiles:
        return _model(folder)


class TestFunctionOfTheCommandLine(WorkerBackendContract):
    backend = FunctionInWorkerBackend
    loses_file = False

    def example(self, folder: Path) -> ModelFiles:
        return ModelFiles("m", folder, directory=folder)
