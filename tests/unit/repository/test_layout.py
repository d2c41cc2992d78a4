"""A path is a repository, a model's folder or a model's file; versions are its numbered folders."""

from pathlib import Path

import pytest

from naiad.errors import Code, InferenceServerError
from naiad.repository.control.places import Places
from naiad.repository.layout import Naming, find, moved, scan

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


def config_file(folder: Path, name: str) -> str:
    found = scan([folder.parent], SUFFIXES, Naming(name)).sources[folder.name]
    assert found.config_file is not None
    assert folder / found.config_path == found.config_file
    return found.config_path


def test_a_custom_config_counts_where_it_is_and_else_config_pbtxt(tmp_path):
    make(
        tmp_path, "a/config.pbtxt", "a/configs/h100.pbtxt", "a/1/x", "b/config.pbtxt", "b/1/x", "c/configs/h100.pbtxt", "c/1/x"
    )
    assert [config_file(tmp_path / model, "h100") for model in "abc"] == [
        "configs/h100.pbtxt",
        "config.pbtxt",
        "configs/h100.pbtxt",
    ]
    assert config_file(tmp_path / "a", "") == config_file(tmp_path / "a", "other") == "config.pbtxt"
    assert scan([tmp_path], SUFFIXES).sources["c"].config_file is None
    assert find([tmp_path], SUFFIXES, "a", Naming("h100")).config_file == tmp_path / "a/configs/h100.pbtxt"


def test_a_moved_model_keeps_the_name_of_its_config(tmp_path):
    make(
        tmp_path,
        "r/m/configs/x.pbtxt",
        "r/m/config.pbtxt",
        "r/m/1/x",
        "there/configs/x.pbtxt",
        "there/config.pbtxt",
        "there/2/x",
    )
    for name, path in (("x", "configs/x.pbtxt"), ("", "config.pbtxt")):
        source = moved(find([tmp_path / "r"], SUFFIXES, "m", Naming(name)), tmp_path / "there")
        assert (source.config_path, list(source.versions)) == (path, [2])


def test_what_a_custom_config_looks_like_counts_as_the_config(tmp_path):
    places = Places([make(tmp_path, "m/config.pbtxt", "m/configs/x.pbtxt", "m/1/x")], SUFFIXES, naming=Naming("x"))
    before = places.find("m").state
    (tmp_path / "m/configs/x.pbtxt").write_text("max_batch_size: 1")
    after = places.find("m").state
    assert before is not None
    assert after is not None
    assert (before.config == after.config, before.files == after.files) == (False, True)
