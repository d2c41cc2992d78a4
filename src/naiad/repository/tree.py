"""What a model's folder looks like from outside: names, sizes and times of its files.

Owns what counts as a change. Blocking; reads no file's content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class TreeState:
    """Two are equal when nothing has changed: `config` stands for the model's config.pbtxt, `files` for all else."""

    config: str
    files: str


def tree_state(directory: Path, config_name: str, file_name: str = "") -> TreeState:
    """Return the state of a model's folder, or of the one file `file_name` in it.

    Hidden names and what Python compiles don't count, nor do files that vanish meanwhile and links in a circle. Other links
    are followed. Raises OSError for what can't be looked at.
    """
    if file_name:
        return TreeState("", _digest([_entry(file_name, (directory / file_name).stat())]))
    config: list[str] = []
    files: list[str] = []
    for name, status in _walk(directory):
        (config if name == config_name else files).append(_entry(name, status))
    return TreeState(_digest(config), _digest(files))


def _walk(directory: Path) -> list[tuple[str, os.stat_result]]:
    """Return the folders and files below `directory` by their path in it, in a fixed order; no folder twice."""
    found: list[tuple[str, os.stat_result]] = []
    seen: set[tuple[int, int]] = set()
    waiting = [directory]
    while waiting:
        for path in _listed(waiting.pop()):
            status = _status(path)
            if status is None:
                continue
            found.append((path.relative_to(directory).as_posix(), status))
            identity = (status.st_dev, status.st_ino)
            if stat.S_ISDIR(status.st_mode) and identity not in seen:
                seen.add(identity)
                waiting.append(path)
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _counts(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _counts(name: str) -> bool:
    return not (name.startswith(".") or name == "__pycache__" or name.endswith(".pyc"))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise


def _entry(name: str, status: os.stat_result) -> str:
    """A folder's own time says nothing that its content doesn't, and changes with what doesn't count."""
    return f"{name}/" if stat.S_ISDIR(status.st_mode) else f"{name}\0{status.st_size}\0{status.st_mtime_ns}"


def _digest(entries: list[str]) -> str:
    return hashlib.blake2b("\n".join(entries).encode(errors="surrogateescape"), digest_size=16).hexdigest()
