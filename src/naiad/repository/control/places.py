"""The repositories of a server as they are now. Everything here blocks: it reads folders.

Owns the paths, and that models which aren't on disk are found by name as well.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from naiad.errors import InferenceServerError
from naiad.repository import layout
from naiad.repository.layout import ModelSource, Naming
from naiad.repository.tree import TreeState, tree_state

_log = logging.getLogger("naiad.repository")


class Followed(Protocol):
    """A repository elsewhere that a path follows. Calls block; one that raises InferenceServerError has left all as it was."""

    def sync(self) -> Path:
        """Make the path as the repository is now, and return it."""

    def sync_model(self, name: str) -> None:
        """Make one model as it is now."""


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of repositories, and `given`: models that aren't on disk, by name. `followed` are brought up to date first."""

    paths: Sequence[Path]
    suffixes: Sequence[str]
    given: Mapping[str, ModelSource] = field(default_factory=dict)
    followed: Sequence[Followed] = ()
    naming: Naming = field(default_factory=Naming)

    def find(self, name: str, config: Any = None) -> ModelSource:
        """Return a model as it is now, with `config` in place of the one on disk. Raises what `layout.find` raises."""
        if name not in self.given:
            for repository in self.followed:
                repository.sync_model(name)
        source = with_state(self.given.get(name) or layout.find(self.paths, self.suffixes, name, self.naming))
        return source if config is None else replace(source, config=config)

    def states(self) -> dict[str, TreeState]:
        """Return what each model on disk looks like, without those that are in two places. Raises what `scan` raises."""
        for repository in self.followed:
            repository.sync()
        found = layout.scan(self.paths, self.suffixes, self.naming, is_quiet=True)
        states = {name: _state(source) for name, source in found.sources.items() if name not in self.given}
        return {name: state for name, state in states.items() if state is not None}

    def names(self) -> Counter[str]:
        """Return the names of the models on disk and how often each is there; nothing when the folders can't be read."""
        try:
            return layout.names(self.paths, self.suffixes)
        except InferenceServerError as error:
            _log.warning("the repository index shows only what is loaded: %s", error.message)
            return Counter()


def with_state(source: ModelSource) -> ModelSource:
    """Return `source` with what its files look like now."""
    return replace(source, state=_state(source))


def _state(source: ModelSource) -> TreeState | None:
    """Return what a model's files look like; None for one without files, or whose files vanish meanwhile."""
    if source.config is not None:
        return None
    try:
        return tree_state(source.directory, source.config_path, source.file_name)
    except OSError:
        return None
