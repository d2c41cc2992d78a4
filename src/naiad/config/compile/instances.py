"""Make the list of a model's instances from its groups.

Names are `<group>_<index>`, on a GPU `<group>_<index>_gpu<id>`. Two groups of one name count on, so that names stay unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from naiad.config import schema
from naiad.config.plan import InstancePlan, ResourceNeed
from naiad.devices.host_policy import default_policy
from naiad.proto import Message

NO_DEVICE = -1


def unknown_policies(config: Message, policies: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield index and text for each instance group that names a host policy which isn't one of `policies`."""
    for index, group in enumerate(config.instance_group):
        if group.host_policy and group.host_policy not in policies:
            text = (
                f"instance group {group.name} of model {config.name} names host_policy '{group.host_policy}', which no "
                f"--host-policy describes: its instances run on any CPU"
            )
            yield index, text


def instance_plans(config: Message) -> tuple[InstancePlan, ...]:
    """Return the instances to make, in the order of the groups; `count` is per GPU for a group on GPUs."""
    made: Counter[str] = Counter()
    plans: list[InstancePlan] = []
    for group in config.instance_group:
        kind = schema.enum_name(group, "kind").removeprefix("KIND_")
        first = made[group.name]
        made[group.name] += group.count
        resources = tuple(ResourceNeed(item.name, item.count, getattr(item, "global")) for item in group.rate_limiter.resources)
        for device in list(group.gpus) or [NO_DEVICE]:
            suffix = f"_gpu{device}" if device != NO_DEVICE else ""
            policy = group.host_policy or default_policy(kind, device)
            plans += [
                InstancePlan(
                    f"{group.name}_{index}{suffix}",
                    kind,
                    device,
                    group.name,
                    group.passive,
                    resources,
                    group.rate_limiter.priority,
                    policy,
                )
                for index in range(first, first + group.count)
            ]
    return tuple(plans)
