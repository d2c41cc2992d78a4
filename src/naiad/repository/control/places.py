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

    @property
    def path(self) -> Path:
        """Return the path."""

    def sync(self) -> Path:
        """Make the path as the repository is now, and return it."""

    def sync_model(self, name: str) -> None:
        """Make one model as it is now."""


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of repositories, and `given`: models that aren't on disk, by name. `followed` are brought up to date first.

    Models are known by their keys, see `layout.key_of`; a client gives names.
    """

    paths: Sequence[Path]
    suffixes: Sequence[str]
    given: Mapping[str, ModelSource] = field(default_factory=dict)
    followed: Sequence[Followed] = ()
    naming: Naming = field(default_factory=Naming)

    @property
    def paths_here(self) -> list[Path]:
        """Return the paths that follow no repository elsewhere."""
        elsewhere = {repository.path for repository in self.followed}
        return [path for path in self.paths if path not in elsewhere]

    def keys_of(self, name: str) -> list[str]:
        """Return the keys of what a client means by `name`: one without namespaces; with them those of all repositories.

        Raises what `layout.find` raises when there is none.
        """
        if not self.naming.is_namespaced or name in self.given:
            return [name]
        for repository in self.followed:
            repository.sync_model(name)
        return layout.keys_of_name(self.paths, self.suffixes, name, self.naming)

    def find(self, key: str, config: Any = None) -> ModelSource:
        """Return a model as it is now, with `config` in place of the one on disk. Raises what `layout.find` raises."""
        if key not in self.given:
            for repository in self.followed:
                repository.sync_model(layout.name_of(key))
        source = with_state(self.given.get(key) or layout.find(self.paths, self.suffixes, key, self.naming))
        return source if config is None else replace(source, config=config)

    def states_at(self, path: Path) -> dict[str, TreeState]:
        """Return what each model at one of the paths looks like, by its key. Raises what `scan` raises."""
        found = layout.scan((path,), self.suffixes, self.naming, is_quiet=True)
        states = {key: _state(source) for key, source in found.sources.items() if key not in self.given}
        return {key: state for key, state in states.items() if state is not None}

    def keys(self) -> Counter[str]:
        """Return the keys of the models on disk and how often each is there; nothing when the folders can't be read."""
        try:
            return layout.keys(self.paths, self.suffixes, self.naming)
        except InferenceServerError as error:
            _log.warning("the repository index shows only what is loaded: %s", error.message)
            return Counter()


def with_state(source: ModelSource) -> ModelSource:
    """Return `source` with what its files look like now."""
    return replace(source, state=_state(source))


def _state(source: ModelSource) -> TreeState | None:
    """Return what a model's files look like; None for one without files, or whose file vanishes meanwhile.

    A folder that can't be looked at has a state as well: the model is still there.
    """
    if source.config is not None:
        return None
    try:
        return tree_state(source.directory, source.config_path, source.file_name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return TreeState("", f"can't be read: {error}")
