"""A remote repository as a folder on this machine that follows it.

Owns the cache folder of one repository: which copy of each model counts, and that two servers don't write to it at once.
Everything blocks; never call it on the event loop.

    models/<model> → ../copies/<model>/<digest>/files     a link, changed in one step
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from naiad.errors import invalid_argument, unavailable
from naiad.repository.remote.address import RemoteAddress
from naiad.repository.remote.copying import FILES, Copier, remove_others
from naiad.repository.remote.listing import RemoteModel
from naiad.repository.remote.store import Store

PARALLEL_COPIES = 8
_INCOMING = ".incoming"


class RemoteRepository:
    """Copies of one remote repository below `cache`. Safe on several threads: calls wait for each other.

    `open_store` is called at the first use, so that making this needs no package and no network.
    """

    def __init__(self, address: RemoteAddress, cache: Path, open_store: Callable[[], Store]) -> None:
        self._address = address
        self._open_store = open_store
        self._copier: Copier | None = None
        self._store: Store | None = None
        digest = hashlib.blake2b(address.text.encode(), digest_size=8).hexdigest()
        self._cache = cache
        self._folder = cache / f"{address.scheme}-{digest}"

    @property
    def path(self) -> Path:
        """Return the folder that stands for the repository; there after the first `sync`."""
        return self._folder / "models"

    def sync(self) -> Path:
        """Make the folder as the repository is now and return it: changed models are copied, removed ones go.

        Raises NOT_FOUND, INVALID_ARGUMENT or UNAVAILABLE with the repository's URL and the reason. A model whose copy fails
        stays as it was before.
        """
        with self._held():
            models = self._opened().models()
            for name in self._present() - set(models):
                self._remove(name)
            for name, model in models.items():
                self._follow(name, model)
        return self.path

    def sync_model(self, name: str) -> None:
        """Make one model as it is now; one that is gone is removed. Raises as `sync` does."""
        with self._held():
            model = self._opened().models().get(name)
            if model is not None:
                self._follow(name, model)
            elif name in self._present():
                self._remove(name)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the cache folder, across processes. The lock goes with the process that has it, however that ends."""
        try:
            _make_private(self._cache)
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise unavailable(f"the model cache '{self._cache}' can't be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise unavailable(f"model repository '{self._address.text}': the model cache can't be written: {error}") from error
        finally:
            os.close(descriptor)

    def _present(self) -> set[str]:
        return {entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")}

    def _follow(self, name: str, model: RemoteModel) -> None:
        if self._copier is None:
            self._copier = Copier(self._opened(), PARALLEL_COPIES)
        copies = self._folder / "copies" / name
        copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = self.path / name
        before = link.readlink().parent.name if link.is_symlink() else ""
        whole = self._copier.copy(name, model, copies)
        if whole.name == before:
            return
        incoming = self._folder / _INCOMING
        incoming.unlink(missing_ok=True)
        incoming.symlink_to(Path("..") / "copies" / name / whole.name / FILES)
        incoming.replace(link)
        # What is loaded may still read from the copy before this.
        remove_others(copies, {whole.name, before})

    def _remove(self, name: str) -> None:
        (self.path / name).unlink()
        copies = self._folder / "copies" / name
        if copies.is_dir():
            shutil.rmtree(copies)


def _make_private(cache: Path) -> None:
    """Make the cache folder for this user alone. Raises INVALID_ARGUMENT for one that others can write to: models are code."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = cache.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise invalid_argument(
            f"--model-cache-directory: '{cache}' must belong to this user and not be writable by others, as models are code"
        )
