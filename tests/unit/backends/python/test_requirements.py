"""When two requirements files mean the same venv."""

from __future__ import annotations

import os
from pathlib import Path

import environments
import pytest

from naiad.backends.python.requirements import content_key
from naiad.errors import InferenceServerError


def _write(folder: Path, text: str, name: str = "requirements.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def _keys(folder: Path, lines: str, *changes) -> list[str]:
    """Return the key of a file with `lines`, and that after each of the changes."""
    file = _write(folder, lines)
    keys = [content_key(file)]
    for change in changes:
        change()
        keys.append(content_key(file))
    return keys


def test_equal_files_mean_the_same_venv_wherever_they_are(tmp_path: Path):
    text = "dep==1.0  # why\n--index-url https://host/x\n"
    assert content_key(_write(tmp_path / "a", text)) == content_key(_write(tmp_path / "b", text))


@pytest.mark.parametrize("other", ["", "dep==1.1\n", "dep==1.0\nmore\n"])
def test_another_content_means_another_venv(tmp_path: Path, other: str):
    assert content_key(_write(tmp_path, "dep==1.0\n")) != content_key(_write(tmp_path, other))


@pytest.mark.parametrize("line", ["-r more.txt", "-rmore.txt", "--requirement=more.txt", "-c more.txt", "-r ./more.txt # why"])
def test_a_change_of_an_included_file_means_another_venv(tmp_path: Path, line: str):
    _write(tmp_path, "dep==1.0\n", "more.txt")
    first, second, third = _keys(
        tmp_path,
        line,
        lambda: _write(tmp_path, "dep==2.0\n", "more.txt"),
        lambda: _write(tmp_path, "dep==1.0\n", "more.txt"),
    )
    assert first != second
    assert first == third


def test_a_change_behind_two_includes_means_another_venv(tmp_path: Path):
    _write(tmp_path / "deep", "-r two.txt", "one.txt")
    _write(tmp_path / "deep", "dep", "two.txt")
    first, second = _keys(tmp_path, "-r deep/one.txt", lambda: _write(tmp_path / "deep", "other", "two.txt"))
    assert first != second


@pytest.mark.parametrize("form", ["./w/{}", "w/{}", "dep @ file://{folder}/w/{}", "-f w", "--find-links=./w"])
def test_a_changed_local_wheel_means_another_venv(tmp_path: Path, form: str):
    wheel = environments.make_wheel(tmp_path / "w", "dep", "1.0", {"dep.py": ""})

    def change() -> None:
        for path in (wheel, wheel.parent):
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))

    first, second = _keys(tmp_path, form.format(wheel.name, folder=tmp_path), change)
    assert first != second


def test_wheels_of_the_same_relative_name_mean_venvs_of_their_own(tmp_path: Path):
    keys = set()
    for model in ("a", "b"):
        wheel = environments.make_wheel(tmp_path / model, "dep", "1.0", {"dep.py": ""})
        os.utime(wheel, ns=(0, 0))
        keys.add(content_key(_write(tmp_path / model, f"./{wheel.name}")))
    assert len(keys) == 2


@pytest.mark.parametrize("text", ["-r requirements.txt", "-r other.txt", "x" * 5000, "a\0b", "-r", "é", "-r missing.txt"])
def test_any_file_has_a_key(tmp_path: Path, text: str):
    _write(tmp_path, "-r requirements.txt", "other.txt")
    assert len(content_key(_write(tmp_path, text))) == 32


def test_a_file_in_another_encoding_has_a_key(tmp_path: Path):
    (tmp_path / "requirements.txt").write_bytes(b"dep # \xe9\n")
    assert len(content_key(tmp_path / "requirements.txt")) == 32


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path):
    with pytest.raises(InferenceServerError, match="can't be read: Is a directory"):
        content_key(tmp_path)
