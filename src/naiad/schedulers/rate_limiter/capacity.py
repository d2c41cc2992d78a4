"""How many there are of each resource: what the operator says, else the most that any instance needs.

Owns the rules of resources that can't be. Doesn't own who has them (`policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from naiad.config.plan import InstancePlan
from naiad.errors import invalid_argument
from naiad.schedulers.rate_limiter.policy import GLOBAL, Resource


def needs_of(instance: InstancePlan) -> dict[Resource, int]:
    """Return what one instance needs; resources that aren't global belong to its device. Those of one name add up."""
    needs: dict[Resource, int] = {}
    for resource in instance.resources:
        key = (resource.name, GLOBAL if resource.is_global else instance.device_id)
        needs[key] = needs.get(key, 0) + resource.count
    return {key: count for key, count in needs.items() if count}


def capacity(needs: Iterable[Mapping[Resource, int]], limits: Mapping[tuple[str, int | None], int]) -> dict[Resource, int]:
    """Return how many there are of each resource. `limits` are the operator's, device None for every device.

    Raises INVALID_ARGUMENT for a name that is both global and a device's, and for a limit that some instance exceeds.
    """
    made: dict[Resource, int] = {}
    for each in needs:
        for key, count in each.items():
            made[key] = max(made.get(key, 0), count)
    names_of_devices = {name for name, device in made if device != GLOBAL}
    for (name, device), least in made.items():
        if device == GLOBAL and name in names_of_devices:
            raise invalid_argument(f'Resource "{name}" is present as both global and device-specific resource')
        limit = limits.get((name, None)) if device == GLOBAL else limits.get((name, device), limits.get((name, None)))
        if limit is None:
            continue
        if limit < least:
            raise invalid_argument(
                f'Resource count for "{name}" is limited to {limit} which will prevent scheduling of one or more model '
                f"instances, the minimum required count is {least}"
            )
        made[name, device] = limit
    return made


def joined(limits: Sequence[tuple[str, int, int | None]]) -> dict[tuple[str, int | None], int]:
    """Return the operator's limits by name and device; of two for one the later counts."""
    return {(name, device): count for name, count, device in limits}
