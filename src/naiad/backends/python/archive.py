"""Environments that come as an archive, such as conda-pack makes: unpacked once into the cache.

Owns which members of an archive are accepted: nothing that it holds is written, or points, outside the folder.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from naiad.backends.python.cache import cached
from naiad.backends.python.command import run_command
from naiad.backends.python.interpreter import child_environment, interpreter_in, variables_of
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import invalid_argument

_CHUNK_BYTES = 1 << 20
_BROKEN = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)

_log = logging.getLogger("naiad.backends.python")


def unpacked(path: Path, settings: EnvironmentSettings) -> Path:
    """Return the folder with what the archive at `path` holds; blocking. An archive with the same content is unpacked once.

    Raises INVALID_ARGUMENT for a file that is no archive, is broken or holds what isn't accepted, UNAVAILABLE when it can't be
    read or the cache not be written.
    """

    def make(folder: Path) -> None:
        _log.info("unpacking the environment '%s' into '%s'", path, folder)
        _extract(path, folder)
        _finish(path, folder, settings)

    try:
        status = path.stat()
        content_key = _content_key(path, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise invalid_argument(f"the environment '{path}' can't be read: {error.strerror}") from error
    return cached(settings.cache_directory, f"archive-{content_key}", make)


@lru_cache(maxsize=256)
def _content_key(path: Path, _inode: int, _size_bytes: int, _modified_ns: int) -> str:
    """Return what is equal for equal content; an archive that hasn't changed is read once."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()[:32]


def _extract(path: Path, folder: Path) -> None:
    # Releases of Python 3.10 and 3.11 from before mid-2023 have no filters.
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(path) as tar:
            tar.extractall(folder, members=_accepted(path, tar), **options)  # noqa: S202 — see `_accepted`
            _read_to_end(tar)
    except _BROKEN as error:
        raise invalid_argument(
            f"the environment '{path}' is no archive that can be unpacked ({type(error).__name__}: {error}); "
            "it must be a tar.gz made by conda-pack, a folder or a venv"
        ) from error
    _check_links(path, folder)


def _read_to_end(tar: tarfile.TarFile) -> None:
    """Read what follows the last member: the checksum is at the end, and a damaged header reads like the end."""
    while tar.fileobj is not None and tar.fileobj.read(_CHUNK_BYTES):
        pass


def _accepted(path: Path, tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members, each when the one before it is written. Raises INVALID_ARGUMENT for one that isn't accepted."""
    links: set[PurePosixPath] = set()
    for member in tar:
        name = PurePosixPath(member.name)
        reason = _reason_against(member, name)
        if not reason and not links.isdisjoint((name, *name.parents)):
            reason = "lies behind a symbolic link of the archive"
        if reason:
            raise invalid_argument(f"the environment '{path}' isn't accepted: its member '{member.name}' {reason}")
        if member.issym():
            links.add(name)
        yield _owned(member)


def _owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member as it is to be written: ours to read, replace and remove, nobody else's to change."""
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = (member.mode | (0o700 if member.isdir() else 0o600)) & 0o755
    return member


def _reason_against(member: tarfile.TarInfo, name: PurePosixPath) -> str:
    if _leaves(name):
        return "would be written outside the folder"
    if member.issym() and _leaves(PurePosixPath(os.path.normpath(name.parent / member.linkname))):
        return f"is a link to '{member.linkname}', outside the folder"
    if member.islnk() and _leaves(PurePosixPath(member.linkname)):
        return f"is a link to '{member.linkname}', outside the folder"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "is neither a file nor a folder nor a link"
    return ""


def _leaves(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts


def _check_links(path: Path, folder: Path) -> None:
    """Refuse links which leave the folder by way of others: what each single one says doesn't show that."""
    root = folder.resolve()
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = Path(parent, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(root):
                raise invalid_argument(
                    f"the environment '{path}' isn't accepted: its link '{entry.relative_to(folder)}' leads outside the folder"
                )


def _finish(path: Path, folder: Path, settings: EnvironmentSettings) -> None:
    """Let the environment learn its new place, when it was packed by conda-pack."""
    script = folder / "bin" / "conda-unpack"
    interpreter = interpreter_in(folder)
    if interpreter is None or not script.is_file():
        return
    variables = child_environment(variables_of(folder))
    result = run_command([str(interpreter), str(script)], variables, folder, settings.timeout_s)
    if not result.is_success:
        raise invalid_argument(f"the environment '{path}' can't be unpacked: its bin/conda-unpack failed: {result.tail}")
