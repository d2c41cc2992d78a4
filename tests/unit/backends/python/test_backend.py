"""What a worker runs for a Python model: its file, its folders, and what is refused before a process starts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from naiad.backends.base import ModelFiles
from naiad.backends.python.backend import PythonBackend
from naiad.errors import Code, InferenceServerError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").touch()
    return tmp_path / "m"


def _files(model: Path, file: str = "1/model.py", **parameters: str) -> ModelFiles:
    return ModelFiles("m", model / file, parameters, directory=model)


def test_a_model_runs_its_file_on_the_servers_interpreter(model: Path):
    program = PythonBackend.program(_files(model))
    assert (Path(sys.executable), True, {}) == (program.interpreter, program.is_own_interpreter, program.variables)
    assert (model / "1" / "model.py", model, model / "1") == (
        program.model_file,
        program.model_directory,
        program.version_directory,
    )
    assert program.backend_directory is None


@pytest.mark.parametrize("name", ["other.py", "code/other.py"])
def test_the_config_may_rename_the_file(model: Path, name: str):
    path = model / "1" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    program = PythonBackend.program(_files(model, f"1/{name}"))
    assert (path, model / "1") == (program.model_file, program.version_directory)


def test_a_single_file_has_its_own_folder_as_that_of_its_version(tmp_path: Path):
    (tmp_path / "fn.py").touch()
    assert tmp_path == PythonBackend.program(_files(tmp_path, "fn.py")).version_directory


def test_a_version_folder_without_the_file_is_an_error_that_names_the_path(model: Path):
    (model / "1" / "model.py").unlink()
    with pytest.raises(InferenceServerError, match=f"model 'm': there is no model file '{model}/1/model.py'") as caught:
        PythonBackend.program(_files(model))
    assert caught.value.code is Code.NOT_FOUND


def test_a_file_outside_the_models_folder_is_refused(model: Path, tmp_path: Path):
    (tmp_path / "elsewhere.py").touch()
    with pytest.raises(InferenceServerError, match="isn't in a version folder"):
        PythonBackend.program(ModelFiles("m", tmp_path / "elsewhere.py", directory=model))


@pytest.mark.parametrize("value", ["yes", "no"])
def test_whether_inputs_may_be_on_a_gpu_is_yes_or_no(model: Path, value: str):
    assert PythonBackend.program(_files(model, FORCE_CPU_ONLY_INPUT_TENSORS=value)).is_own_interpreter


@pytest.mark.parametrize("value", ["", "true", "YES"])
def test_another_value_for_it_is_refused(model: Path, value: str):
    with pytest.raises(InferenceServerError, match=r"'FORCE_CPU_ONLY_INPUT_TENSORS' is '.*', must be 'yes' or 'no'") as caught:
        PythonBackend.program(_files(model, FORCE_CPU_ONLY_INPUT_TENSORS=value))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_custom_stub_is_told_not_to_be_used(model: Path, caplog: pytest.LogCaptureFixture):
    (model / "triton_python_backend_stub").touch()
    with caplog.at_level(logging.INFO):
        PythonBackend.program(_files(model))
    assert "triton_python_backend_stub' isn't used" in caplog.text
