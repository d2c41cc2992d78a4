"""The pools of threads that batches borrow from: one for all instances, and one for each host policy that is bound to CPUs.

Owns which pool is whose. A thread is bound once, when it starts, so that running a batch costs nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from naiad.execution.threads import ThreadPool

_UNBOUND: Mapping[str, frozenset[int]] = MappingProxyType({})


class ExecutionPools:
    """`limit` threads at most in each pool; `policies` has the CPUs of each bound host policy. Loop thread only."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, policies: Mapping[str, frozenset[int]] = _UNBOUND) -> None:
        self.default = ThreadPool(limit, loop)
        self._bound = {name: ThreadPool(limit, loop, cpus, f"-{name}") for name, cpus in policies.items()}

    def of(self, policy: str) -> ThreadPool:
        """Return the pool for instances of host policy `policy`."""
        return self._bound.get(policy, self.default)

    def is_bound(self, policy: str) -> bool:
        """Return whether instances of `policy` may run on some CPUs only."""
        return policy in self._bound

    def queued_count(self) -> int:
        """Return how many jobs wait for a thread, in all pools."""
        return sum(pool.queued_count() for pool in (self.default, *self._bound.values()))

    def close(self) -> None:
        """Let all threads end after the jobs that are queued; doesn't wait for them."""
        for pool in (self.default, *self._bound.values()):
            pool.close()
