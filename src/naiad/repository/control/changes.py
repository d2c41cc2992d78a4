"""What two looks at the repositories say is to be done: a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from naiad.repository.tree import TreeState


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of models, in order. `to_load` are new or changed ones, `to_unload` those that are gone."""

    to_load: tuple[str, ...]
    to_unload: tuple[str, ...]


def changes(before: Mapping[str, TreeState], now: Mapping[str, TreeState], tried: Mapping[str, TreeState | None]) -> Changes:
    """Return what is to be done when the repositories looked so `before` and look so `now`.

    `tried` are the states in which models were last loaded, with success or without. A change counts when both looks see the
    same: files that are still being copied, and a folder that is being replaced, have time to settle.
    """
    return Changes(
        to_load=tuple(sorted(name for name, state in now.items() if before.get(name) == state != tried.get(name))),
        to_unload=tuple(sorted(name for name in tried if name not in now and name not in before)),
    )
