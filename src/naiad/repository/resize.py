"""Whether a change of a model's config can be made without loading it anew: a pure function."""

from __future__ import annotations

from typing import Any

from naiad.repository.loader import PreparedModel
from naiad.repository.states import Origin


def differs_in_counts_only(origin: Origin, prepared: PreparedModel) -> bool:
    """Return whether nothing but the `count` of instance groups differs between what serves and what was prepared.

    The model's files are compared by their state; a source without one may have changed in any way.
    """
    old, new = origin.source, prepared.source
    if old.state is None or new.state is None or old.state.files != new.state.files:
        return False
    if (old.directory, old.file_name, old.versions) != (new.directory, new.file_name, new.versions):
        return False
    is_changed = origin.config != prepared.config
    return bool(is_changed and _without_counts(origin.config) == _without_counts(prepared.config))


def _without_counts(config: Any) -> Any:
    copied = type(config)()
    copied.CopyFrom(config)
    for group in copied.instance_group:
        group.count = 1
    return copied
