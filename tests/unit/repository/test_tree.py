"""What counts as a change of a model's folder."""

from __future__ import annotations

import os

import pytest
from controlled_models import touch
from model_folders import identity

from naiad.repository.tree import tree_state


@pytest.fixture
def folder(tmp_path):
    made = identity(tmp_path)
    (made / "1" / "weights").write_text("w")
    return made


def state(folder, file_name=""):
    return tree_state(folder, "config.pbtxt", file_name)


def test_the_config_is_told_from_all_else(folder):
    before = state(folder)
    assert state(folder) == before
    touch(folder / "config.pbtxt")
    after = state(folder)
    assert (after.config != before.config, after.files) == (True, before.files)
    touch(folder / "1" / "weights")
    assert (state(folder).config, state(folder).files != after.files) == (after.config, True)


@pytest.mark.parametrize("name", ["2", "labels.txt"])
def test_what_comes_and_goes_is_a_change(folder, name):
    before = state(folder)
    (folder / name).mkdir()
    assert state(folder) != before
    (folder / name).rmdir()
    assert state(folder) == before


def test_another_size_with_the_same_time_is_a_change(folder):
    before, path = state(folder), folder / "1" / "weights"
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text("longer")
    os.utime(path, ns=times)
    assert state(folder) != before


@pytest.mark.parametrize("name", [".hidden", "1/__pycache__", "1/model.pyc"])
def test_what_a_load_writes_itself_is_no_change(folder, name):
    before = state(folder)
    (folder / name).mkdir()
    assert state(folder) == before


def test_links_are_followed_and_circles_end(folder, tmp_path):
    target = tmp_path / "target"
    target.write_text("1")
    (folder / "1" / "link").symlink_to(target)
    (folder / "1" / "circle").symlink_to(folder)
    before = state(folder)
    touch(target)
    assert state(folder) != before


def test_of_a_single_file_nothing_else_counts(folder):
    before = state(folder / "1", "weights")
    (folder / "1" / "other").write_text("x")
    assert state(folder / "1", "weights") == before
    touch(folder / "1" / "weights")
    assert state(folder / "1", "weights") != before
