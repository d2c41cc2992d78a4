"""Which of a model's versions are served: the version policy as a pure function."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from naiad.errors import invalid_argument

_log = logging.getLogger("naiad.repository")


def select(config: Any, available: Iterable[int]) -> tuple[int, ...]:
    """Return the versions that the ModelConfig's `version_policy` chooses of `available`, ascending.

    Raises INVALID_ARGUMENT when it chooses none. A version of `specific` that isn't there is named in the log and skipped.
    """
    present = sorted(available)
    policy = config.version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        chosen = present
    elif kind == "specific":
        wanted = sorted(set(policy.specific.versions))
        for version in wanted:
            if version not in present:
                _log.error("version %d of model '%s' is in its version policy but not on disk", version, config.name)
        chosen = [version for version in wanted if version in present]
    else:
        chosen = present[-max(1, policy.latest.num_versions) :]
    if not chosen:
        raise invalid_argument(
            f"at least one version must be available under the version policy of model '{config.name}', on disk are: "
            f"{', '.join(map(str, present)) or 'none'}"
        )
    return tuple(chosen)
