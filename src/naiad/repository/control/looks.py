"""What all repositories look like, one look after the other: a repository that can't be looked at stays as it was.

Owns what was seen last, and that a repository which is gone is told from one that is empty. Blocking; one look at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from naiad.errors import InferenceServerError, unavailable
from naiad.repository.control.places import Followed, Places
from naiad.repository.tree import TreeState

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class _Seen:
    """The models of one repository by key, and which folder it was."""

    identity: tuple[int, int]
    states: dict[str, TreeState]


class Looks:
    """See the module."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: dict[Path, _Seen] = {}
        self._problems: dict[object, str] = {}

    def look(self, is_regular: bool) -> dict[str, TreeState]:
        """Return what each model on disk looks like, without those that are in two places.

        Only regular looks ask stores. Raises what `layout.scan` raises for a repository that has never been seen.
        """
        if is_regular:
            for repository in self._places.followed:
                self._sync(repository)
        # A repository that is given twice is looked at once; a link to one may lead elsewhere with each look.
        paths = {path.resolve(): path for path in reversed(self._places.paths)}.values()
        for path in paths:
            self._look_at(path)
        states = [self._seen[path].states for path in paths]
        counts = Counter(key for found in states for key in found)
        return {key: state for found in states for key, state in found.items() if counts[key] == 1}

    def _sync(self, repository: Followed) -> None:
        try:
            repository.sync()
        except InferenceServerError as error:
            self._note(repository, error.message)
        else:
            self._note(repository, "")

    def _look_at(self, path: Path) -> None:
        before = self._seen.get(path)
        try:
            identity = _identity(path)
            now = _Seen(identity, self._places.states_at(path))
            # One that goes while it is read seems to have lost models.
            if _identity(path) != identity:
                raise unavailable(f"'{path}' has become another folder while it was read")
        except (InferenceServerError, OSError) as error:
            if before is None:
                raise
            self._note(path, error.message if isinstance(error, InferenceServerError) else f"'{path}': {error.strerror}")
            return
        if before is not None and before.states and not now.states and now.identity != before.identity:
            self._note(path, f"'{path}' is empty and another folder than before, as when a disk is gone")
            return
        self._note(path, "")
        self._seen[path] = now

    def _note(self, who: object, problem: str) -> None:
        """Say once what is wrong, and once that it is over."""
        before = self._problems.get(who, "")
        if problem and problem != before:
            _log.error("a model repository can't be looked at, what is loaded of it stays: %s", problem)
        elif before and not problem:
            _log.info("a model repository can be looked at again; it was: %s", before)
        self._problems[who] = problem


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
