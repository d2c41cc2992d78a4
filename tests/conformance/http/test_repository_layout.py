"""What a model repository looks like from outside: folders, versions, names, and the reasons of models that can't be loaded."""

from __future__ import annotations

import pytest
import requests
from http_models import Pair, write_identity
from model_folders import write_model


@pytest.fixture(scope="module")
def index(tmp_path_factory, serve_for_module):
    """The repository index of a server over one good model of each kind and one bad one: name → its entries."""
    repository = tmp_path_factory.mktemp("layout")
    other = tmp_path_factory.mktemp("other")
    (repository / "README.txt").write_text("a file is no model")
    write_all(repository)
    write_identity(repository, "twice")
    write_identity(other, "twice")
    server = serve_for_module(repository, other, "--exit-on-error=false")
    found: dict[str, list[dict[str, str]]] = {}
    for entry in requests.post(f"{server.url}/v2/repository/index", timeout=10).json():
        found.setdefault(entry["name"], []).append(entry)
    return found


def write_all(repository):
    write_identity(repository, "good")
    for name in ("leading_zero", "no_number", "zero", "specific", "all_versions"):
        write_identity(repository, name)
    (repository / "leading_zero" / "02").mkdir()
    (repository / "no_number" / "old").mkdir()
    for folder in ("configs", "warmup", "initial_state"):
        (repository / "no_number" / folder).mkdir()
    (repository / "zero" / "1").rename(repository / "zero" / "0")
    (repository / "specific" / "5").mkdir()
    append(repository / "specific", "version_policy { specific { versions: [ 1, 7 ] } }")
    (repository / "all_versions" / "3").mkdir()
    append(repository / "all_versions", "version_policy { all { } }")
    write_identity(repository, "named")
    append(repository / "named", 'name: "named"')
    write_identity(repository, "misnamed")
    append(repository / "misnamed", 'name: "other"')
    write_identity(repository, "no_version")
    (repository / "no_version" / "1").rmdir()
    write_identity(repository, "policy_without")
    append(repository / "policy_without", "version_policy { specific { versions: [ 9 ] } }")
    write_model(repository, "by_suffix.identity", 'input [{ name: "X" data_type: TYPE_FP32 dims: 1 }]')
    write_model(repository, "no_backend", "max_batch_size: 1")
    write_model(repository, "no_syntax", 'backend: "identity" {')
    write_model(repository, "unknown_field", 'backend: "identity" colour: "red"')
    write_identity(repository, "labels_missing", Pair(labels="nowhere.txt"))
    write_identity(repository, "labels_outside", Pair(labels="../labels.txt"))
    (repository / "empty").mkdir()


def append(folder, text):
    path = folder / "config.pbtxt"
    path.write_text(path.read_text() + text)


def ready(entries):
    return [entry["version"] for entry in entries if entry["state"] == "READY"]


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("good", ["1"]),
        ("named", ["1"]),
        ("leading_zero", ["1"]),
        ("no_number", ["1"]),
        ("zero", ["0"]),
        ("specific", ["1"]),
        ("all_versions", ["1", "3"]),
    ],
)
def test_versions_are_the_folders_with_numbers_that_the_policy_chooses(index, name, versions):
    assert ready(index[name]) == versions


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("misnamed", "unexpected directory name 'misnamed' for model 'other', directory name must equal model name"),
        ("no_version", "at least one version must be available under the version policy of model 'no_version'"),
        ("policy_without", "at least one version must be available under the version policy of model 'policy_without'"),
        ("no_backend", "no_backend"),
        ("no_syntax", "config.pbtxt"),
        ("unknown_field", "colour"),
        ("labels_missing", "nowhere.txt"),
        ("labels_outside", "'../labels.txt'"),
        ("twice", "model appears in two or more repositories"),
    ],
)
def test_what_can_not_be_loaded_is_unavailable_with_its_reason(index, name, words):
    assert [entry["state"] for entry in index[name]] == ["UNAVAILABLE"]
    assert words in index[name][0]["reason"]


def test_a_model_that_is_there_twice_has_no_version(index):
    assert "version" not in index["twice"][0]


def test_files_of_the_repository_are_no_models(index):
    assert "README.txt" not in index


def test_an_empty_folder_is_a_model_that_can_not_be_loaded(index):
    assert not ready(index.get("empty", []))
