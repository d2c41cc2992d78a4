"""Folders for uploaded models, and the end of those whose server was killed.

Owns their names, and who may remove one: a lock on it, which the system takes back with the process, says whether it
is in use. Blocking.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "naiad-model-"

_log = logging.getLogger("naiad.repository")


def make() -> tuple[Path, int]:
    """Return a new folder and the descriptor that keeps it from being removed, to be closed by the caller. Raises OSError."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        fd = _locked(path)
        # A server that starts at this moment may have taken it for a leftover.
        if fd is not None and _is_at(path, fd):
            return path, fd
        if fd is not None:
            os.close(fd)


def remove_leftovers() -> None:
    """Remove the folders of this user's servers that are gone."""
    for path in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        fd = _locked(path)
        if fd is None:
            continue
        try:
            if os.fstat(fd).st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
                _log.info("removed '%s', the folder of an uploaded model whose server has ended", path)
        finally:
            os.close(fd)


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the folder's lock, None when it is another's or can't be had."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
