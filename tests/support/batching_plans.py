"""Dynamic batching plans in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naiad.config.plan import DynamicBatchingPlan, QueuePolicy


def make_plan(
    max_batch_size: int = 8,
    preferred: tuple[int, ...] | None = None,
    delay_us: int = 0,
    default_policy: QueuePolicy | None = None,
    policies: Mapping[int, QueuePolicy] | None = None,
    **others: Any,
) -> DynamicBatchingPlan:
    """Return a plan as the config compiler would: without `preferred` the only preferred size is the largest batch."""
    levels = others.pop("levels", 0)
    return DynamicBatchingPlan(
        max_batch_size=max_batch_size,
        preferred_batch_sizes=(max_batch_size,) if preferred is None else preferred,
        max_queue_delay_us=delay_us,
        preserve_ordering=others.pop("preserve_ordering", False),
        levels=levels,
        default_level=others.pop("default_level", 1 if levels else 0),
        default_policy=default_policy or QueuePolicy(),
        policies=policies or {},
        ragged_inputs=frozenset(),
        variable_inputs=others.pop("variable_inputs", ()),
        has_optional_inputs=others.pop("has_optional_inputs", False),
        **others,
    )
