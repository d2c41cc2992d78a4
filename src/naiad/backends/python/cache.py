"""The cache of environments that the server makes: found by what they were made of.

Owns that an environment is made once, by one process at a time, and used only when it is whole. An environment is made in the
place where it stays, since scripts in it hold its path. Each try has a folder of its own: a program of an earlier try that
outlived its server can't write into it. A marker, written last, names the folder that is whole.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from naiad.errors import unavailable

_MARKER_SUFFIX = ".made"
_LOCK_SUFFIX = ".lock"
_NAME = re.compile(r"(.+)-[0-9a-f]{8}")


def cached(cache_directory: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return the environment's folder for `key`, which `make` has filled: now, or in an earlier run or another process.

    `make` gets the folder, which exists and is empty. Blocks while another process or thread makes the same one. Raises what
    `make` raises, with nothing left of the folder, and UNAVAILABLE when the cache can't be written.
    """
    try:
        folder = _made(cache_directory, key)
        if folder is None:
            cache_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock(cache_directory, key):
                folder = _made(cache_directory, key) or _make(cache_directory, key, make)
    except OSError as error:
        raise unavailable(
            f"the environment can't be written to '{cache_directory}': {error.strerror or error}; "
            "--environment-cache-directory names another folder"
        ) from error
    return folder


def _made(cache_directory: Path, key: str) -> Path | None:
    """Return the folder that is whole, None when there is none."""
    try:
        folder = cache_directory / _marker(cache_directory, key).read_text("utf-8")
    except FileNotFoundError:
        return None
    return folder if folder.is_dir() else None


def _marker(cache_directory: Path, key: str) -> Path:
    return cache_directory / f"{key}{_MARKER_SUFFIX}"


def _make(cache_directory: Path, key: str, make: Callable[[Path], None]) -> Path:
    _remove_leftovers(cache_directory, key)
    folder = cache_directory / f"{key}-{token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        make(folder)
        unfinished = folder.with_suffix(_MARKER_SUFFIX)
        unfinished.write_text(folder.name, "utf-8")
        unfinished.replace(_marker(cache_directory, key))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _remove_leftovers(cache_directory: Path, key: str) -> None:
    """Remove what runs that were killed have left. The lock of `key` is held; what others are making is let be."""
    for folder in [path for path in cache_directory.iterdir() if path.is_dir()]:
        owner = _owner(folder)
        if owner is None:
            continue
        if owner == key:
            shutil.rmtree(folder, ignore_errors=True)
        elif _made(cache_directory, owner) != folder:
            with suppress(BlockingIOError), _lock(cache_directory, owner, waits=False):
                if _made(cache_directory, owner) != folder:
                    shutil.rmtree(folder, ignore_errors=True)


def _owner(folder: Path) -> str | None:
    """Return the key that `folder` was made for, None when it is no folder of the cache: an operator may have others there."""
    match = _NAME.fullmatch(folder.name)
    if match is None or not folder.with_name(f"{match[1]}{_LOCK_SUFFIX}").exists():
        return None
    return match[1]


@contextmanager
def _lock(cache_directory: Path, key: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of `key`. Lock files stay: one that is removed while another process waits for it locks nothing."""
    with (cache_directory / f"{key}{_LOCK_SUFFIX}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
