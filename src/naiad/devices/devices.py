"""`Devices`: what the server knows of the machine, as everyone who places instances asks it.

Owns the answers for one instance: its CPUs and its share of them. Reads nothing of the machine by itself: `machine` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from naiad.devices.inventory import Cpus, UsableGpus


@dataclass(frozen=True, slots=True)
class CpuShare:
    """What one worker process gets: it runs on `cpus` only (empty: on any), and libraries in it are told to start
    `thread_count` threads (0: they are told nothing).
    """

    cpus: frozenset[int] = frozenset()
    thread_count: int = 0


ANY_CPU = CpuShare()


@dataclass(frozen=True, slots=True)
class Devices:
    """`policies` has the CPUs of each host policy that is bound; `free_gpu_memory` returns the bytes that are free on each GPU
    now, and may block. Without arguments nothing is known of the machine: it has no GPUs, and nobody is bound.
    """

    gpus: UsableGpus = field(default_factory=UsableGpus)
    cpus: Cpus = field(default_factory=Cpus)
    policies: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    free_gpu_memory: Callable[[], Mapping[int, int]] = dict

    def cpus_of(self, policy: str) -> frozenset[int]:
        """Return the CPUs that instances of host policy `policy` are bound to, empty for any."""
        return self.policies.get(policy, frozenset())

    def share_of(self, policy: str, instance_count: int) -> CpuShare:
        """Return the share of a worker that is one of `instance_count` of its model under `policy`.

        Libraries start a thread for each CPU of the machine; they are told a number only where that is too many.
        """
        cpus = self.cpus_of(policy)
        count = max(1, self.cpus.thread_count(cpus) // max(1, instance_count))
        is_less = instance_count > 1 or bool(self.cpus.quota)
        return CpuShare(cpus, count if is_less and self.cpus.allowed else 0)
