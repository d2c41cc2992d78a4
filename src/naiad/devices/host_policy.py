"""Host policies: named sets of CPUs that instances run on, as `--host-policy` gives them.

Owns the settings, how several of one name are joined, the names that instances have by default, and what a policy means on
this machine. Binding threads belongs to `affinity`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from naiad.devices.inventory import Cpus
from naiad.devices.ranges import parse_ranges, ranges_text
from naiad.errors import invalid_argument

NUMA_NODE = "numa-node"
CPU_CORES = "cpu-cores"

_NODE = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """What an operator says of one policy. `numa_node` is None and `cpu_cores` empty where nothing is said."""

    name: str
    numa_node: int | None = None
    cpu_cores: frozenset[int] = frozenset()


def parse_setting(text: str) -> HostPolicy:
    """Return the policy with the one setting of `<name>,numa-node=<n>` or `<name>,cpu-cores=<ranges>`. Raises ValueError."""
    name, _, setting = text.partition(",")
    key, _, value = setting.partition("=")
    if not name.strip() or key not in (NUMA_NODE, CPU_CORES):
        raise ValueError
    if key == CPU_CORES:
        return HostPolicy(name, cpu_cores=parse_ranges(value))
    if not _NODE.fullmatch(value):
        raise ValueError
    return HostPolicy(name, int(value))


def join_settings(settings: Sequence[HostPolicy]) -> tuple[HostPolicy, ...]:
    """Return one policy for each name; of two values for one setting the later wins."""
    joined: dict[str, HostPolicy] = {}
    for each in settings:
        before = joined.get(each.name, HostPolicy(each.name))
        node = before.numa_node if each.numa_node is None else each.numa_node
        joined[each.name] = replace(before, numa_node=node, cpu_cores=each.cpu_cores or before.cpu_cores)
    return tuple(joined.values())


def default_policy(kind: str, device_id: int) -> str:
    """Return the policy of an instance whose group names none; `kind` is CPU, GPU or MODEL."""
    return f"gpu_{device_id}" if kind == "GPU" else kind.lower()


def bound_cpus(policies: Sequence[HostPolicy], cpus: Cpus) -> Mapping[str, frozenset[int]]:
    """Return the CPUs of each policy, by its name: its cores, or without them those of its node that this process may use.

    Raises INVALID_ARGUMENT for cores and nodes that aren't there.
    """
    return {policy.name: _cpus_of(policy, cpus) for policy in policies}


def _cpus_of(policy: HostPolicy, cpus: Cpus) -> frozenset[int]:
    missing = policy.cpu_cores - cpus.allowed
    if missing:
        raise invalid_argument(
            f"--host-policy: cpu-cores of policy '{policy.name}' names CPUs {ranges_text(missing)}, which this process may not "
            f"use; it may use {ranges_text(cpus.allowed)}"
        )
    if policy.numa_node is None:
        return policy.cpu_cores
    on_node = cpus.nodes.get(policy.numa_node)
    if on_node is None:
        there = ranges_text(cpus.nodes) or "none known"
        raise invalid_argument(
            f"--host-policy: numa-node of policy '{policy.name}' is {policy.numa_node}, this machine's nodes are: {there}"
        )
    if not (policy.cpu_cores or on_node & cpus.allowed):
        raise invalid_argument(
            f"--host-policy: numa-node of policy '{policy.name}' is {policy.numa_node}, of whose CPUs this process may use none"
        )
    return policy.cpu_cores or on_node & cpus.allowed
