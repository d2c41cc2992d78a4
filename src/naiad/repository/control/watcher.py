"""Hears of changes in folders as they happen, so that nobody has to wait for the next look.

Owns the thread that listens, and is the only module that knows watchfiles. What it says is no more than "look": what has
changed is told by a look. Where it can't listen, the looks that come anyway have to do.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from naiad.repository.control.disks import is_local

# Changes that come within a step of each other are one; so many at once may have been more than the system keeps.
_STEP_MS = 200
_MOST_MS = 2000
_TIMEOUT_MS = 5000
_MANY = 4096

_log = logging.getLogger("naiad.repository")

Notify = Callable[[Sequence[str]], Any]


class Watcher:
    """Calls `on_change` on a thread of its own when something below one of `paths` has changed, for those on local disks.

    `notify` makes what listens at folders (RustNotify of watchfiles).
    """

    def __init__(self, paths: Iterable[Path], on_change: Callable[[], None], notify: Notify | None = None) -> None:
        self._paths = tuple(paths)
        self._on_change = on_change
        self._notify = notify
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self.run, name="naiad-watch", daemon=True).start()

    def stop(self) -> None:
        """Say nothing any more; the thread ends within a step. Doesn't wait for it."""
        self._stop.set()

    def run(self) -> None:
        """Listen until `stop`, or until it can't be done, which the log says."""
        paths = [path for path in self._paths if is_local(path)]
        for path in self._paths:
            if path not in paths:
                _log.info("changes in '%s' are found by looks only: it isn't on a disk of this machine", path)
        try:
            notify = self._notify or _rust_notify()
            while paths and not self._stop.is_set():
                self._listen(paths, notify)
        except Exception as error:
            # Foreign code: limits of the system, and what it calls errors of its own.
            _log.warning("changes in the model repositories are found by looks only: %s", error)

    def _listen(self, paths: Sequence[Path], notify: Notify) -> None:
        """Listen until the folders are others than before, or so many changes came that some were lost."""
        before = _identities(paths)
        there = [str(path) for path, identity in zip(paths, before) if identity is not None]
        if not there:
            self._stop.wait(_TIMEOUT_MS / 1000)
            return
        with notify(there) as listener:
            # What changed before it listened was not heard.
            self._on_change()
            while not self._stop.is_set():
                heard = listener.watch(_MOST_MS, _STEP_MS, _TIMEOUT_MS, self._stop)
                if isinstance(heard, set):
                    self._on_change()
                if isinstance(heard, set) and len(heard) >= _MANY:
                    _log.info("%d changes at once in the model repositories: listening begins anew", len(heard))
                    return
                if _identities(paths) != before:
                    return


def _identities(paths: Iterable[Path]) -> list[tuple[int, int] | None]:
    return [_identity(path) for path in paths]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _rust_notify() -> Notify:
    rust = importlib.import_module("watchfiles._rust_notify")
    return lambda paths: rust.RustNotify(list(paths), False, False, 300, True, True)
