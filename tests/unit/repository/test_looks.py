"""Looks at several repositories: one that can't be looked at stays as it was, and the others are seen as they are."""

from __future__ import annotations

import shutil

import pytest
from model_folders import identity

from naiad.errors import InferenceServerError
from naiad.repository.control.looks import Looks
from naiad.repository.control.places import Places


@pytest.fixture
def two(tmp_path):
    identity(tmp_path / "first", "a")
    identity(tmp_path / "second", "b")
    return tmp_path / "first", tmp_path / "second"


def test_one_that_is_gone_stays_as_it_was_and_the_other_is_followed(two, caplog):
    looks = Looks(Places(two, ()))
    before = looks.look(True)
    two[0].rename(two[0].with_name("away"))
    identity(two[1], "c")
    assert looks.look(True) == {**before, "c": looks.look(True)["c"]}
    [line] = [record.getMessage() for record in caplog.records]
    assert line == (f"a model repository can't be looked at, what is loaded of it stays: '{two[0]}': No such file or directory")


def test_an_empty_folder_in_its_place_is_a_disk_that_is_gone(two):
    looks = Looks(Places(two, ()))
    before = looks.look(True)
    two[0].rename(two[0].with_name("away"))
    two[0].mkdir()
    assert looks.look(True) == before
    identity(two[0], "z")
    assert sorted(looks.look(True)) == ["b", "z"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_one_that_goes_while_it_is_read_stays_as_it_was(two, monkeypatch, is_replaced):
    looks = Looks(Places(two, ()))
    before = looks.look(True)
    plain = Places.states_at

    def going(places, path):
        if path == two[0] and path.exists():
            path.rename(path.with_name("away"))
            path.with_name("new").mkdir()
            if is_replaced:
                path.with_name("new").rename(path)
            return {}
        return plain(places, path)

    monkeypatch.setattr(Places, "states_at", going)
    assert looks.look(True) == before
    monkeypatch.undo()
    assert looks.look(True) == before


def test_a_repository_that_is_emptied_is_empty(two):
    looks = Looks(Places(two, ()))
    looks.look(True)
    shutil.rmtree(two[0] / "a")
    assert sorted(looks.look(True)) == ["b"]


def test_models_in_two_repositories_are_in_neither_and_a_repository_given_twice_is_one(two):
    looks = Looks(Places((*two, two[0] / ".." / "first"), ()))
    assert sorted(looks.look(True)) == ["a", "b"]
    identity(two[1], "a")
    assert sorted(looks.look(True)) == ["b"]


def test_one_that_was_never_seen_cannot_stay_as_it_was(tmp_path):
    with pytest.raises((InferenceServerError, OSError)):
        Looks(Places((tmp_path / "nowhere",), ())).look(True)
