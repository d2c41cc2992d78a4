"""Segments: pieces of shared memory without a name, known by a file descriptor only.

Owns how the operating system makes and maps them, and the check that one of a peer's can't shrink under our reads. Not what
lies where in a segment.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import mmap
import os
import secrets
import stat
import sys

# Numbers of Linux's interface. They are here since a Python built against an old C library lacks names for them, and one for
# memfd_create too, on whatever kernel it runs; such Pythons come with models' own environments.
_MFD_CLOEXEC = 1
_MFD_ALLOW_SEALING = 2
_F_ADD_SEALS = 1033
_F_GET_SEALS = 1034
_SEAL_SEAL = 1
_SEAL_SHRINK = 2
_SEAL_GROW = 4

_IS_LINUX = sys.platform == "linux"


def create_segment(size: int) -> int:
    """Return the descriptor of a new segment of `size` bytes, all zero; it is the caller's to close, and isn't inherited.

    On Linux its size is sealed. Memory is taken page by page, as it is touched. Raises ValueError for a size below 1, OSError
    when the system has no descriptor or memory left.
    """
    if size < 1:
        raise ValueError(f"a segment of {size} bytes can't be, it must hold 1 byte at least")
    fd = _memory_file() if _IS_LINUX else _unlinked_file()
    try:
        os.ftruncate(fd, size)
        if _IS_LINUX:
            fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_segment(fd: int, size: int, *, must_be_sealed: bool) -> memoryview:
    """Map a segment and return its `size` bytes, writable; closes nothing. The mapping lives as long as a view of it.

    `must_be_sealed`: refuse a segment that its maker can still shrink, since a read beyond the new end would kill this process.
    Only Linux can tell; elsewhere the peer is trusted. Raises ValueError naming what is wrong with the segment.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("the descriptor of a segment isn't one of shared memory")
    if not 1 <= size <= status.st_size:
        raise ValueError(f"a segment said to have {size} bytes holds {status.st_size}")
    if must_be_sealed and _IS_LINUX:
        _check_seals(fd)
    if sys.version_info >= (3, 13):
        return memoryview(mmap.mmap(fd, size, trackfd=False))
    # Before 3.13 a mapping keeps a duplicate of the descriptor open.
    return memoryview(mmap.mmap(fd, size))


def _memory_file() -> int:
    flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.memfd_create("naiad", flags)
    fd: int = ctypes.CDLL(None, use_errno=True).memfd_create(b"naiad", flags)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"memfd_create: {os.strerror(number)}")
    return fd


def _unlinked_file() -> int:
    """Return a descriptor of POSIX shared memory whose name is gone already."""
    posix = importlib.import_module("_posixshmem")
    name = f"/naiad-{secrets.token_hex(8)}"
    fd: int = posix.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    posix.shm_unlink(name)
    return fd


def _check_seals(fd: int) -> None:
    try:
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        raise ValueError("a segment is a file that can't be sealed: its maker could cut it") from None
    if not seals & _SEAL_SHRINK:
        raise ValueError("a segment isn't sealed: its maker could cut it")
