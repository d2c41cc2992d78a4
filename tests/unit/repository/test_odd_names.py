"""Names and links of a repository that aren't what they should be: named, and nothing else is the worse for them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from model_folders import identity

from naiad.errors import InferenceServerError
from naiad.repository.control.places import Places
from naiad.repository.layout import Naming, find, scan
from naiad.repository.tree import tree_state


def names(path: Path) -> list[str]:
    return sorted(scan([path], ()).sources)


@pytest.mark.parametrize("name", [b"not-utf8-\xff", b"new\nline", b"tab\t", b"\x7f"])
def test_a_folder_whose_name_cannot_be_shown_is_ignored_with_a_warning(tmp_path, caplog, name):
    identity(tmp_path)
    (tmp_path / os.fsdecode(name)).mkdir()
    assert names(tmp_path) == ["echo"]
    [warning] = [record.getMessage() for record in caplog.records]
    shown = repr(str(tmp_path / os.fsdecode(name)))
    assert warning == f"ignoring folder {shown}: a model's name is UTF-8 without control characters"


@pytest.mark.parametrize("name", ["with space", "日本語", "a'b\"c", "..a", "$HOME", "x" * 255])
def test_other_names_are_those_of_models(tmp_path, name):
    identity(tmp_path, name)
    if name.startswith("."):
        assert names(tmp_path) == []
    else:
        assert names(tmp_path) == [name]
        assert find([tmp_path], (), name).directory == tmp_path / name


@pytest.mark.parametrize("name", ["x" * 300, "../echo", "a\0b", "..", "."])
def test_what_no_folder_can_be_called_is_not_found(tmp_path, name):
    identity(tmp_path / "models")
    with pytest.raises(InferenceServerError, match="there is no such model"):
        find([tmp_path / "models"], (), name)


def test_links_lead_to_models_elsewhere_and_broken_ones_are_named(tmp_path, caplog):
    identity(tmp_path / "elsewhere", "far")
    models = tmp_path / "models"
    identity(models, "near")
    (models / "linked").symlink_to(tmp_path / "elsewhere" / "far")
    (models / "dangling").symlink_to("nowhere")
    (models / "circle").symlink_to("circle")
    assert names(models) == ["linked", "near"]
    warned = {record.getMessage() for record in caplog.records}
    assert warned == {f"ignoring link '{models / name}': what it points to is not there" for name in ("circle", "dangling")}


@pytest.mark.parametrize("version", ["9223372036854775808", "1" * 200])
def test_a_version_that_is_too_large_for_the_protocol_is_ignored_with_a_warning(tmp_path, caplog, version):
    folder = identity(tmp_path)
    (folder / version).mkdir()
    assert list(scan([tmp_path], ()).sources["echo"].versions) == [1]
    assert "is a whole number below 2^63" in caplog.text


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A repository of `echo` and `locked`, whose folder can't be listed: as root, no mode would do that."""
    identity(tmp_path)
    folder = identity(tmp_path, "locked")
    plain = Path.iterdir

    def iterdir(path):
        if path == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    return folder


def test_a_folder_that_cannot_be_read_says_so_and_the_others_are_found(tmp_path, locked):
    found = scan([tmp_path], ()).sources
    assert sorted(found) == ["echo", "locked"]
    assert found["locked"].problem == f"folder '{locked}' can't be read: Permission denied"
    assert found["echo"].problem == ""


def test_to_polling_a_folder_that_cannot_be_read_is_still_there(tmp_path, locked):
    places = Places([tmp_path], ())
    states = places.states_at(tmp_path)
    assert sorted(states) == ["echo", "locked"]
    assert "can't be read" in states["locked"].files
    assert places.states_at(tmp_path) == states


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path), lambda path: path.symlink_to("x")])
def test_a_config_that_is_no_file_counts_as_the_config(tmp_path, make):
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True)
    make(folder / "config.pbtxt")
    assert Naming().config_file(folder) == folder / "config.pbtxt"


def test_links_in_a_circle_do_not_count_in_a_models_folder(tmp_path):
    folder = identity(tmp_path)
    before = tree_state(folder, "config.pbtxt")
    (folder / "1" / "a").symlink_to("b")
    (folder / "1" / "b").symlink_to("a")
    assert tree_state(folder, "config.pbtxt") == before
