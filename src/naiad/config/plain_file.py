"""Reads small files that belong to a model, whatever lies where they should be.

Owns that only a plain file of bounded size is read: a FIFO would have its reader wait for ever, a device never ends. Knows no
file's meaning.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from naiad.errors import InferenceServerError, invalid_argument

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_BLOCK_BYTES = 1 << 20


def read_plain_file(path: Path, most_bytes: int) -> bytes:
    """Return the content of the file at `path`, links followed.

    Raises INVALID_ARGUMENT with the path when it isn't there, can't be read, is no plain file or has over `most_bytes` bytes.
    """
    try:
        # A FIFO without a writer is opened at once this way, and a terminal doesn't become the process's own.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        _check_kind(path, status)
        if status.st_size > most_bytes:
            raise _too_large(path, f"{status.st_size} bytes", most_bytes)
        content = _read(descriptor, most_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)
    # Some files of the system say that they are empty and aren't; others grow.
    if len(content) > most_bytes:
        raise _too_large(path, "more bytes than it says", most_bytes)
    return content


def check_plain_or_folder(path: Path) -> None:
    """Raise INVALID_ARGUMENT when a FIFO, a socket or a device lies at `path`, or what can't be looked at: a circle of links.

    Nothing is raised when nothing is there: who needs it says so.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISDIR(status.st_mode):
        _check_kind(path, status)


def _check_kind(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise invalid_argument(f"{path}: is {kind}, must be a plain file")


def _read(descriptor: int, most_bytes: int) -> bytes:
    blocks: list[bytes] = []
    left = most_bytes
    while left and (block := os.read(descriptor, min(left, _BLOCK_BYTES))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def _unreadable(path: Path, error: Exception) -> InferenceServerError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return invalid_argument(f"{path}: can't be read: {reason}")


def _too_large(path: Path, size: str, most_bytes: int) -> InferenceServerError:
    return invalid_argument(f"{path}: has {size}, at most {most_bytes} are read")
