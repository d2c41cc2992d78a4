"""The cache of environments that the server makes: one folder each, named by what it was made of.

Owns that an environment is made once, by one process at a time, and used only when it is whole. An environment is made in the
place where it stays, since scripts in it hold its path; a marker written last says that it is whole.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from naiad.errors import unavailable

_MARKER = "complete"
_LOCK_SUFFIX = ".lock"


def cached(cache_directory: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return the environment's folder for `key`, which `make` has filled: now, or in an earlier run or another process.

    `make` gets the folder, which exists and is empty. Blocks while another process or thread makes the same one. Raises what
    `make` raises, with nothing left of the folder, and UNAVAILABLE when the cache can't be written.
    """
    folder = cache_directory / key
    if (folder / _MARKER).exists():
        return folder / "environment"
    try:
        cache_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(cache_directory, key):
            if not (folder / _MARKER).exists():
                _remove_leftovers(cache_directory, key)
                _make(folder, make)
    except OSError as error:
        raise unavailable(
            f"the environment can't be written to '{folder}': {error.strerror or error}; "
            "--environment-cache-directory names another folder"
        ) from error
    return folder / "environment"


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    environment = folder / "environment"
    environment.mkdir(mode=0o700, parents=True)
    try:
        make(environment)
        (folder / _MARKER).touch()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove_leftovers(cache_directory: Path, key: str) -> None:
    """Remove what runs that were killed have left. The lock of `key` is held; what others are making is let be."""
    _remove(cache_directory / key)
    for lock_file in cache_directory.glob(f"*{_LOCK_SUFFIX}"):
        folder = lock_file.with_suffix("")
        if folder.name == key or not folder.exists() or (folder / _MARKER).exists():
            continue
        with suppress(BlockingIOError), _lock(cache_directory, folder.name, waits=False):
            if not (folder / _MARKER).exists():
                _remove(folder)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _lock(cache_directory: Path, key: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of `key`. Lock files stay: one that is removed while another process waits for it locks nothing."""
    with (cache_directory / f"{key}{_LOCK_SUFFIX}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
