"""Backends that are a folder with a model.py: where they are found, and what is said when they aren't."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends.base import ModelFiles
from naiad.backends.identity.backend import IdentityBackend
from naiad.backends.python.backend import PythonBackend
from naiad.backends.table import BackendTable
from naiad.errors import Code, InferenceServerError


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    folder = tmp_path / "backends"
    (folder / "x").mkdir(parents=True)
    (folder / "x" / "model.py").touch()
    return folder


def _model(folder: Path, name: str) -> ModelFiles:
    (folder / name / "1").mkdir(parents=True)
    return ModelFiles(name, folder / name / "1", directory=folder / name)


def test_all_models_of_the_backend_run_its_file_and_keep_their_own_folders(backends: Path, tmp_path: Path):
    table = BackendTable([], backend_directory=backends)
    programs = [table.find("x").program(_model(tmp_path, name)) for name in ("a", "b")]
    assert {(backends / "x" / "model.py", backends / "x")} == {(made.model_file, made.backend_directory) for made in programs}
    assert [tmp_path / "a" / "1", tmp_path / "b" / "1"] == [made.version_directory for made in programs]


def test_it_is_a_backend_of_its_own_name_in_worker_processes(backends: Path):
    found = BackendTable([], backend_directory=backends).find("x")
    assert (found.name, found.is_isolated, found.default_instance_count) == ("x", True, 1)
    assert PythonBackend.name == "python"
    assert PythonBackend.backend_directory is None


def test_a_folder_cannot_replace_a_built_in_backend(backends: Path):
    (backends / "identity").mkdir()
    (backends / "identity" / "model.py").touch()
    assert IdentityBackend is BackendTable([], backend_directory=backends).find("identity")


@pytest.mark.parametrize("name", ["", "..", "../x", "x/y", "x/../x", "/x", ".x", "x ", "x\0", "x\n"])
def test_a_name_that_is_no_folders_name_is_refused(backends: Path, name: str):
    with pytest.raises(InferenceServerError, match="A backend's name is made of letters") as caught:
        BackendTable([], backend_directory=backends).find(name)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_folder_without_the_file_is_named(backends: Path):
    (backends / "empty").mkdir()
    with pytest.raises(InferenceServerError) as caught:
        BackendTable([], backend_directory=backends).find("empty")
    assert "unable to find backend library for backend 'empty', try specifying runtime on the model" in caught.value.message
    assert f"The folder '{backends}/empty' has no model.py" in caught.value.message


def test_a_missing_folder_is_named(backends: Path):
    with pytest.raises(InferenceServerError, match=f"there is no folder '{backends}/nope'"):
        BackendTable([], backend_directory=backends).find("nope")


def test_without_a_backend_directory_its_flag_is_named():
    with pytest.raises(InferenceServerError, match="--backend-directory"):
        BackendTable([]).find("x")


def test_a_native_library_cannot_be_loaded(backends: Path):
    (backends / "native").mkdir()
    (backends / "native" / "libtriton_native.so").touch()
    with pytest.raises(InferenceServerError, match=r"libtriton_native\.so' is a native backend") as caught:
        BackendTable([], backend_directory=backends).find("native")
    assert caught.value.code is Code.UNIMPLEMENTED


def test_a_file_beside_a_native_library_is_used(backends: Path):
    (backends / "x" / "libtriton_x.so").touch()
    assert BackendTable([], backend_directory=backends).find("x").name == "x"


@pytest.mark.parametrize("place", ["version", "model", "backend"])
def test_the_runtime_model_py_is_looked_for_in_the_version_then_the_model_then_the_backend(
    backends: Path, tmp_path: Path, place: str
):
    files = _model(tmp_path, "m")
    places = {"version": files.directory / "1", "model": files.directory, "backend": backends / "x"}
    wanted = list(places)[list(places).index(place) :]
    for name in wanted:
        (places[name] / "model.py").touch()
    program = BackendTable([], backend_directory=backends).find("x", "model.py").program(files)
    assert places[place] / "model.py" == program.model_file
    assert (backends / "x" if place == "backend" else None) == program.backend_directory


def test_the_runtime_model_py_takes_the_place_of_a_built_in_backend(backends: Path, tmp_path: Path):
    files = _model(tmp_path, "m")
    (files.directory / "1" / "model.py").touch()
    found = BackendTable([], backend_directory=backends).find("identity", "model.py")
    assert (found.name, found.is_isolated) == ("identity", True)


def test_the_runtime_model_py_that_is_nowhere_names_where_it_was_searched(backends: Path, tmp_path: Path):
    files = _model(tmp_path, "m")
    with pytest.raises(InferenceServerError) as caught:
        BackendTable([], backend_directory=backends).find("y", "model.py").program(files)
    assert "unable to find backend library 'model.py' for model 'm', searched: " in caught.value.message
    for folder in (files.directory / "1", files.directory, backends / "y"):
        assert f"'{folder}/model.py'" in caught.value.message


def test_the_native_library_of_a_known_backend_stands_for_that_backend():
    assert IdentityBackend is BackendTable([]).find("identity", "libtriton_identity.so")


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("libtriton_other.so", "is a native backend"),
        ("../model.py", "can't be used"),
        ("/x/libtriton_x.so", "can't be used"),
        ("other.py", "can't be used"),
    ],
)
def test_another_runtime_is_refused(backends: Path, runtime: str, reason: str):
    with pytest.raises(InferenceServerError, match=reason):
        BackendTable([], backend_directory=backends).find("x", runtime)
