"""Copies one model's files to a folder of its own, so that the folder is there whole or not at all.

Owns the order that makes it so: a file comes under a temporary name, is checked, written through to the disk and renamed;
the folder follows when all its files have. Everything blocks.

    copies/<model>/<digest of the listing>/files/…   whole
    copies/<model>/<digest>.part/files/…             begun; its files are whole, and are kept when the copy goes on
    copies/<model>/<either>/manifest.json            what each file was in the store
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from operator import itemgetter
from pathlib import Path
from threading import Lock
from time import monotonic

from naiad.errors import unavailable
from naiad.repository.remote.listing import RemoteFile, RemoteModel
from naiad.repository.remote.store import Store

FILES = "files"
_MANIFEST = "manifest.json"
_PART = ".part"
_TEMPORARY = ".naiad-incoming"
_PROGRESS_SECONDS = 5.0
_BLOCK_BYTES = 1 << 20

_log = logging.getLogger("naiad.repository")


class Copier:
    """Copies models of one store with at most `parallel` files at a time."""

    def __init__(self, store: Store, parallel: int) -> None:
        self._store = store
        self._parallel = parallel
        self._is_etag_digest = True

    def copy(self, name: str, model: RemoteModel, copies: Path) -> Path:
        """Return the folder below `copies` that holds `model` whole; what is there already isn't fetched again.

        Raises UNAVAILABLE for a store that fails, a content that isn't what it should be and a full disk; what was copied
        until then is kept for the next call.
        """
        whole = copies / model.digest()
        if whole.is_dir():
            return whole
        part = copies / f"{whole.name}{_PART}"
        try:
            missing = self._begin(model, copies, part)
            self._fetch_all(name, model, missing, part / FILES)
            for folder in (part / FILES / path for path in sorted(model.folders, reverse=True)):
                _write_through(folder)
            _write_through(part / FILES)
            _write_through(part)
            part.rename(whole)
            _write_through(copies)
        except OSError as error:
            raise self._disk_error(name, error) from error
        return whole

    def _begin(self, model: RemoteModel, copies: Path, part: Path) -> dict[str, RemoteFile]:
        """Make the folder of a copy and take over what earlier ones have; return the files that are missing."""
        files = part / FILES
        files.mkdir(parents=True, exist_ok=True)
        for folder in sorted(model.folders):
            (files / folder).mkdir(exist_ok=True)
        manifest = {path: [file.size, file.state] for path, file in model.files.items()}
        _write(part / _MANIFEST, json.dumps(manifest).encode())
        earlier = [(folder, _manifest(folder)) for folder in copies.iterdir() if folder != part]
        for path, file in model.files.items():
            if not _is_there(files / path, file):
                _take_over(files / path, path, file, earlier)
        return {
            path: file for path, file in sorted(model.files.items(), key=itemgetter(0)) if not _is_there(files / path, file)
        }

    def _fetch_all(self, name: str, model: RemoteModel, missing: Mapping[str, RemoteFile], files: Path) -> None:
        total = sum(file.size or 0 for file in missing.values())
        _log.info(
            "model '%s': copying %d of %d files (%d bytes) from %s",
            name, len(missing), len(model.files), total, self._store.address.text,
        )  # fmt: skip
        progress = _Progress(name, len(missing))
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="naiad-copy") as pool:
            waiting = [pool.submit(self._fetch, file, files / path, progress) for path, file in missing.items()]
            done, rest = wait(waiting, return_when=FIRST_EXCEPTION)
            for future in rest:
                future.cancel()
        for future in done:
            future.result()

    def _fetch(self, file: RemoteFile, target: Path, progress: _Progress) -> None:
        temporary = target.with_name(target.name[:200] + _TEMPORARY)
        try:
            digest = self._fetch_checked(file, temporary)
            if file.md5 and digest != file.md5 and not self._is_no_digest(file, digest, temporary):
                raise self._wrong(file, f"its MD5 is {digest}, must be {file.md5}")
            temporary.chmod(0o600)
            _write_through(temporary)
            progress.add(temporary.stat().st_size)
            temporary.rename(target)
            _write_through(target.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def _fetch_checked(self, file: RemoteFile, temporary: Path) -> str:
        """Fetch a file and check its size; return its MD5."""
        self._store.fetch(file.remote_path, temporary)
        size = temporary.stat().st_size
        if file.size is not None and size != file.size:
            raise self._wrong(file, f"{size} bytes have come, must be {file.size}")
        return _md5(temporary)

    def _is_no_digest(self, file: RemoteFile, digest: str, temporary: Path) -> bool:
        """Tell whether the store's ETags are no digests, as with encrypted objects: the same content comes twice."""
        if not file.is_etag:
            return False
        if self._is_etag_digest and self._fetch_checked(file, temporary) == digest:
            self._is_etag_digest = False
            _log.warning("%s: ETags are no digests of the content there; sizes are checked only", self._store.address.text)
        return not self._is_etag_digest

    def _wrong(self, file: RemoteFile, what: str) -> Exception:
        return unavailable(f"model repository '{self._store.address.text}': '{file.remote_path}' came wrong: {what}")

    def _disk_error(self, name: str, error: OSError) -> Exception:
        return unavailable(
            f"model repository '{self._store.address.text}': model '{name}' can't be written to the model cache: {error}"
        )


class _Progress:
    """Says in the log how far a copy is, at most every few seconds."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._done = 0
        self._bytes = 0
        self._lock = Lock()
        self._said_at = monotonic()

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self._done += 1
            self._bytes += size_bytes
            now = monotonic()
            if self._done == self._count or now - self._said_at >= _PROGRESS_SECONDS:
                self._said_at = now
                _log.info("model '%s': %d of %d files copied, %d bytes", self._name, self._done, self._count, self._bytes)


def remove_others(copies: Path, kept: set[str]) -> None:
    """Remove the copies of a model below `copies` whose names aren't `kept`."""
    for folder in copies.iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder)


def _take_over(target: Path, path: str, file: RemoteFile, earlier: list[tuple[Path, Mapping[str, object]]]) -> None:
    """Link the same file of an earlier copy to `target`: files of copies are never written to, and keep their times."""
    if not file.state:
        return
    for folder, manifest in earlier:
        source = folder / FILES / path
        if manifest.get(path) == [file.size, file.state] and _is_there(source, file):
            target.unlink(missing_ok=True)
            os.link(source, target)
            return


def _is_there(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and (file.size is None or path.stat().st_size == file.size)


def _manifest(folder: Path) -> Mapping[str, object]:
    """Return what the files of an earlier copy were; nothing where that can't be read, so that they are fetched again."""
    try:
        content = json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + _TEMPORARY)
    temporary.write_bytes(content)
    _write_through(temporary)
    temporary.rename(path)


def _write_through(path: Path) -> None:
    """Have the system write a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
