"""What every backend whose models run in worker processes must do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from naiad.backends.base import ModelFiles, WorkerBackend, WorkerProgram
from naiad.errors import InferenceServerError


class WorkerBackendContract:
    """Subclass as TestX with `backend` and `example`; `loses_file` tells whether its models can lack their file."""

    backend: type[WorkerBackend]
    loses_file = True

    def example(self, folder: Path) -> ModelFiles:
        """Return the files of a model that is written below `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def files(self, tmp_path: Path) -> ModelFiles:
        return self.example(tmp_path)

    @pytest.fixture
    def program(self, files: ModelFiles) -> WorkerProgram:
        return self.backend.program(files)

    def test_it_says_that_its_models_live_in_worker_processes(self):
        assert self.backend.name
        assert self.backend.is_isolated is True
        assert self.backend.default_instance_count >= 1

    def test_its_interpreter_can_be_executed(self, program: WorkerProgram):
        assert program.interpreter.is_absolute()
        assert os.access(program.interpreter, os.X_OK)

    def test_its_files_and_folders_are_there(self, program: WorkerProgram):
        assert program.model_file.is_file()
        assert program.model_directory.is_dir()
        assert program.version_directory.is_dir()

    def test_a_shared_file_is_in_the_backends_folder_and_another_in_the_models(self, program: WorkerProgram):
        folder = program.model_directory if program.backend_directory is None else program.backend_directory
        assert program.model_file.is_relative_to(folder)

    def test_asked_again_it_says_the_same(self, files: ModelFiles, program: WorkerProgram):
        assert program == self.backend.program(files)

    def test_variables_are_texts(self, program: WorkerProgram):
        assert all(isinstance(text, str) for pair in program.variables.items() for text in pair)

    def test_a_missing_file_is_an_error_that_names_it(self, files: ModelFiles, program: WorkerProgram):
        if not self.loses_file:
            pytest.skip("the backend brings the file")
        program.model_file.unlink()
        with pytest.raises(InferenceServerError, match=program.model_file.name):
            self.backend.program(files)
