"""A path is a repository, a model's folder or a model's file; versions are its numbered folders."""

from pathlib import Path

import pytest

from naiad.errors import Code, InferenceServerError
from naiad.repository.layout import scan

SUFFIXES = (".onnx",)


def make(root: Path, *files: str) -> Path:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def test_every_folder_of_a_repository_is_a_model(tmp_path):
    found = scan([make(tmp_path, "a/1/model.onnx", "a/3/model.onnx", "b/config.pbtxt", "b/1/x", "README", ".git/x")], SUFFIXES)
    assert sorted(found.sources) == ["a", "b"]
    assert list(found.sources["a"].versions) == [1, 3]
    assert found.sources["a"].config_file is None
    assert found.sources["b"].config_file == tmp_path / "b" / "config.pbtxt"


def test_versions_are_whole_numbers_without_leading_zeros(tmp_path, caplog):
    found = scan([make(tmp_path, "a/config.pbtxt", "a/0/m", "a/10/m", "a/9/m", "a/01/m", "a/x/m", "a/warmup/m")], SUFFIXES)
    assert list(found.sources["a"].versions) == [0, 9, 10]
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 2
    assert any("/01'" in text for text in warned)
    assert any("/x'" in text for text in warned)


@pytest.mark.parametrize("files", [["config.pbtxt", "1/model.onnx"], ["1/model.onnx", "2/model.onnx"], ["config.pbtxt"]])
def test_a_models_folder_is_one_model(tmp_path, files):
    assert list(scan([make(tmp_path / "only", *files)], SUFFIXES).sources) == ["only"]


def test_a_models_file_is_one_model_of_version_1(tmp_path):
    found = scan([make(tmp_path, "net.onnx") / "net.onnx"], SUFFIXES)
    source = found.sources["net"]
    assert (source.versions, source.file_name) == ({1: tmp_path}, "net.onnx")


def test_a_name_in_two_places_is_in_neither(tmp_path):
    paths = [make(tmp_path / name, "m/1/model.onnx", f"{name}/1/model.onnx") for name in ("x", "y")]
    found = scan(paths, SUFFIXES)
    assert sorted(found.sources) == ["x", "y"]
    assert list(found.duplicates) == ["m"]


def test_the_same_repository_twice_is_once(tmp_path):
    make(tmp_path, "m/1/model.onnx")
    assert list(scan([tmp_path, tmp_path / "m" / ".."], SUFFIXES).sources) == ["m"]


@pytest.mark.parametrize(("name", "code"), [("absent", Code.NOT_FOUND), ("notes.txt", Code.INVALID_ARGUMENT)])
def test_what_is_not_there_or_no_model_is_refused_by_name(tmp_path, name, code):
    make(tmp_path, "notes.txt")
    with pytest.raises(InferenceServerError, match=name) as caught:
        scan([tmp_path / name], SUFFIXES)
    assert caught.value.code is code
