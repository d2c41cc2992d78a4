"""Which environment a model gets: its own, one for its requirements, its backend's, or the server's."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import environments
import pytest

from naiad.backends.base import ModelFiles
from naiad.backends.python.backend import PythonBackend, python_based
from naiad.errors import Code, InferenceServerError


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.make_venv(tmp_path_factory.mktemp("venv") / "env")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").touch()
    return tmp_path / "m"


def _files(model: Path, path: str | None = None, *, allows: bool = False) -> ModelFiles:
    settings = {"environment-cache-directory": str(model.parent / "cache"), "allow-model-requirements": str(allows).lower()}
    parameters = {} if path is None else {"EXECUTION_ENV_PATH": path}
    return ModelFiles("m", model / "1" / "model.py", parameters, settings, model)


def _packed(folder: Path, name: str = "env.tar.gz") -> Path:
    (folder / "site").mkdir(exist_ok=True)
    environments.link_numpy(folder / "site")
    return environments.archive_of(folder / name, [("bin/python", environments.wrapper_script(folder / "site"))])


def test_a_venv_is_used_as_it_is(model: Path, venv: Path):
    program = PythonBackend.program(_files(model, str(venv)))
    assert (venv / "bin" / "python", False) == (program.interpreter, program.is_own_interpreter)
    assert str(venv) == program.variables["VIRTUAL_ENV"]


def test_an_empty_path_means_the_servers_own(model: Path):
    assert PythonBackend.program(_files(model, "")).is_own_interpreter


@pytest.mark.parametrize("text", ["$$TRITON_MODEL_DIRECTORY/env", "env", "./env", "$$TRITON_MODEL_DIRECTORY/../m/env"])
def test_paths_are_within_the_models_folder_by_placeholder_or_when_relative(
    model: Path, venv: Path, text: str, monkeypatch: pytest.MonkeyPatch
):
    (model / "env").symlink_to(venv)
    monkeypatch.chdir("/")
    program = PythonBackend.program(_files(model, text))
    assert (model / "env" / "bin" / "python").samefile(program.interpreter)
    assert program.interpreter.is_absolute()


def test_an_archive_is_unpacked_into_the_cache(model: Path):
    _packed(model)
    program = PythonBackend.program(_files(model, "$$TRITON_MODEL_DIRECTORY/env.tar.gz"))
    assert program.interpreter.is_relative_to(model.parent / "cache")
    assert not program.is_own_interpreter


@pytest.mark.parametrize(
    ("text", "reason", "code"),
    [
        ("nowhere", "the environment '.*/m/nowhere' does not exist", Code.NOT_FOUND),
        ("$$TRITON_MODEL_DIRECTORYX/env", "does not exist", Code.NOT_FOUND),
        ("$$TRITON_MODEL_DIRECTORY", "has no interpreter", Code.INVALID_ARGUMENT),
        ("1", "has no interpreter: .* has bin/python", Code.INVALID_ARGUMENT),
        ("s3://bucket/env.tar.gz", "must be a path on this machine", Code.INVALID_ARGUMENT),
        ("1/model.py", "is no archive that can be unpacked", Code.INVALID_ARGUMENT),
    ],
)
def test_a_path_without_an_environment_is_an_error_that_names_the_model(model: Path, text: str, reason: str, code: Code):
    with pytest.raises(InferenceServerError, match=f"model 'm': .*{reason}") as caught:
        PythonBackend.program(_files(model, text))
    assert code is caught.value.code


def test_an_archive_without_an_interpreter_says_what_one_has(model: Path):
    environments.archive_of(model / "env.tar.gz", [("nested/bin/python", "")])
    with pytest.raises(InferenceServerError, match="has no interpreter"):
        PythonBackend.program(_files(model, "env.tar.gz"))


def test_requirements_are_not_installed_without_the_flag_and_the_log_names_it(model: Path, caplog: pytest.LogCaptureFixture):
    (model / "requirements.txt").write_text("no-such-package-at-all\n")
    assert PythonBackend.program(_files(model)).is_own_interpreter
    assert "requirements.txt' isn't used; start the server with --allow-model-requirements" in caplog.text
    assert not (model.parent / "cache").exists()


def test_a_named_environment_goes_before_requirements(model: Path, venv: Path, caplog: pytest.LogCaptureFixture):
    (model / "requirements.txt").write_text("no-such-package-at-all\n")
    with caplog.at_level(logging.INFO):
        program = PythonBackend.program(_files(model, str(venv), allows=True))
    assert venv / "bin" / "python" == program.interpreter
    assert "requirements.txt' isn't used, the model has its environment" in caplog.text


def test_a_backends_archive_is_used_for_all_its_models(model: Path, tmp_path: Path, venv: Path):
    backend = tmp_path / "backends" / "x"
    backend.mkdir(parents=True)
    (backend / "model.py").touch()
    _packed(backend, "pb_exec_env_model.py.tar.gz")
    found = python_based("x", backend)
    files = replace(_files(model), path=model / "1")
    assert found.program(files).interpreter.is_relative_to(tmp_path / "cache")
    own = found.program(replace(files, parameters={"EXECUTION_ENV_PATH": str(venv)}))
    assert venv / "bin" / "python" == own.interpreter


def test_a_model_that_is_data_for_a_backend_has_no_requirements_of_its_own(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    backend = tmp_path / "backends" / "x"
    backend.mkdir(parents=True)
    (backend / "model.py").touch()
    (model / "requirements.txt").write_text("of-the-model\n")
    assert python_based("x", backend).program(_files(model)).is_own_interpreter
    assert "requirements.txt" not in caplog.text
    (backend / "requirements.txt").write_text("of-the-backend\n")
    python_based("x", backend).program(_files(model))
    assert f"'{backend}/requirements.txt' isn't used" in caplog.text
