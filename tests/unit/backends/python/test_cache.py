"""An environment is made once, used only when it is whole, and nothing of a failure stays."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from naiad.backends.python.cache import cached
from naiad.errors import Code, InferenceServerError


def _fill(folder: Path) -> None:
    (folder / "file").write_text("whole")


def _never(folder: Path) -> None:
    raise AssertionError("it was there")


def test_what_was_made_is_found_again(tmp_path: Path):
    folder = cached(tmp_path / "cache", "key", _fill)
    assert (folder / "file").read_text() == "whole"
    assert folder == cached(tmp_path / "cache", "key", _never)


def test_keys_have_folders_of_their_own(tmp_path: Path):
    assert cached(tmp_path, "a", _fill) != cached(tmp_path, "b", _fill)


def test_others_cannot_read_the_cache(tmp_path: Path):
    cached(tmp_path / "cache", "key", _fill)
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def _folders(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_a_failure_leaves_nothing_and_the_next_try_begins_anew(tmp_path: Path):
    def fail(folder: Path) -> None:
        _fill(folder)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached(tmp_path, "key", fail)
    assert not _folders(tmp_path)
    assert (cached(tmp_path, "key", _fill) / "file").exists()


def test_an_environment_that_was_deleted_is_made_again(tmp_path: Path):
    shutil.rmtree(cached(tmp_path, "key", _fill))
    assert (cached(tmp_path, "key", _fill) / "file").exists()


def test_what_a_killed_process_left_is_replaced(tmp_path: Path):
    whole = cached(tmp_path, "whole", _fill)
    script = (
        "import os, sys, pathlib; from naiad.backends.python.cache import cached\n"
        "def make(folder): (folder / 'half').touch(); os._exit(9)\n"
        "cached(pathlib.Path(sys.argv[1]), sys.argv[2], make)"
    )
    for key in ("key", "other"):
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path), key], check=False).returncode == 9
    assert len(list(tmp_path.glob("*/half"))) == 1, "the second run removes what the first left"
    folder = cached(tmp_path, "key", _fill)
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert {folder, whole} == set(_folders(tmp_path))


@pytest.mark.parametrize("name", ["photos", "key", "my-deadbeef", "other.lock-deadbeef"])
def test_folders_that_the_cache_has_not_made_stay(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    cached(tmp_path, "key", _fill)
    assert (tmp_path / name).is_dir()


def test_what_another_process_is_making_is_let_be(tmp_path: Path):
    making = tmp_path / "other-00000000"
    making.mkdir()
    with (tmp_path / "other.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cached(tmp_path, "key", _fill)
    assert making.is_dir()


def test_a_program_that_outlived_its_server_does_not_write_into_the_next_try(tmp_path: Path):
    tries: list[Path] = []

    def fail(folder: Path) -> None:
        tries.append(folder)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached(tmp_path, "key", fail)
    assert tries[0] != cached(tmp_path, "key", _fill)


def test_many_at_once_make_it_once(tmp_path: Path):
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        _fill(folder)

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: cached(tmp_path, "key", make), range(32)))
    assert [len(folders), len(made)] == [1, 1]


def test_several_processes_make_it_once(tmp_path: Path):
    script = (
        "import sys, pathlib; from naiad.backends.python.cache import cached\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "def make(made):\n    print('made')\n    (made / 'file').touch()\n"
        "assert (cached(folder, 'key', make) / 'file').exists()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert "".join(outputs) == "made\n"


def test_a_cache_that_cannot_be_written_names_the_flag(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InferenceServerError, match="--environment-cache-directory") as caught:
        cached(tmp_path / "file" / "cache", "key", _fill)
    assert caught.value.code is Code.UNAVAILABLE
