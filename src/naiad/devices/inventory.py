"""`Inventory`: the GPUs and CPUs that this process may use, as plain values.

Owns the values and what follows from them. Reading them from the machine belongs to `cpus` and `nvml`; tests make their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Capability = tuple[int, int]
"""A compute capability: major and minor version."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `index` is the number by which CUDA in this process knows it, which CUDA_VISIBLE_DEVICES may change."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_free_bytes: int
    compute_capability: Capability


@dataclass(frozen=True, slots=True)
class Cpus:
    """The CPUs by their numbers in the system. `allowed` are those that this process may run on, `nodes` those of each NUMA
    node by its number. `quota` is how many CPUs' time the process gets (cgroups), 0 when that isn't limited.
    """

    allowed: frozenset[int] = frozenset()
    nodes: Mapping[int, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    quota: float = 0.0

    def thread_count(self, cpus: Iterable[int] = ()) -> int:
        """Return how many threads can compute at once on `cpus` (none given: all that are allowed), at least 1."""
        count = len(frozenset(cpus) or self.allowed)
        return max(1, min(count, math.ceil(self.quota)) if self.quota else count)


@dataclass(frozen=True, slots=True)
class UsableGpus:
    """The GPUs that models may be put on: `ids` are their indices, ascending.

    `is_supported`: there is what it takes to ask for GPUs, even if there is none. GPUs with a compute capability below
    `min_capability` aren't among them.
    """

    ids: tuple[int, ...] = ()
    is_supported: bool = False
    min_capability: Capability = (0, 0)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What there is. `gpus` is None where GPUs can't be asked for: no driver, or no package that speaks to it."""

    gpus: tuple[Gpu, ...] | None = None
    cpus: Cpus = field(default_factory=Cpus)

    def usable_gpus(self, min_capability: Capability = (0, 0)) -> UsableGpus:
        """Return the GPUs with at least `min_capability`."""
        gpus = self.gpus or ()
        ids = tuple(sorted(gpu.index for gpu in gpus if gpu.compute_capability >= min_capability))
        return UsableGpus(ids, self.gpus is not None, min_capability)
