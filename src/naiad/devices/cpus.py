"""Reading which CPUs this process may use: affinity, NUMA nodes, and the quota of its control groups.

Owns the files of the system and their forms. Only Linux has them; elsewhere all CPUs are allowed and there are no nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from naiad.devices.inventory import Cpus
from naiad.devices.ranges import parse_ranges

_NODES = Path("sys/devices/system/node")
_CGROUPS = Path("sys/fs/cgroup")


def read_cpus(root: Path = Path("/")) -> Cpus:
    """Return the CPUs of this process; blocking. What of the system can't be read isn't known: no nodes, no quota.

    `root` holds `proc` and `sys`. The affinity asked for is that of the process's main thread.
    """
    return Cpus(_allowed(), dict(_nodes(root)), read_quota(root))


def thread_cpu_count(root: Path = Path("/")) -> int:
    """Return how many threads can compute at once on the CPUs of the calling thread, within the quota; at least 1."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return Cpus(frozenset(allowed), quota=read_quota(root)).thread_count()


def read_quota(root: Path = Path("/")) -> float:
    """Return how many CPUs' time this process gets, 0.0 for no limit: the least of its control group and those above it."""
    quotas = [quota for folder in _group_folders(root) for quota in _quotas(folder)]
    return min(quotas, default=0.0)


def _allowed() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(os.getpid()))
    return frozenset(range(os.cpu_count() or 1))


def _nodes(root: Path) -> Iterator[tuple[int, frozenset[int]]]:
    for folder in sorted((root / _NODES).glob("node[0-9]*")):
        text = _text(folder / "cpulist")
        if text:
            yield int(folder.name.removeprefix("node")), parse_ranges(text)


def _group_folders(root: Path) -> Iterator[Path]:
    """Yield the folders with this process's limits: a container sees its own group at the top, whatever its path says."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / _CGROUPS / ("cpu" if controllers else "")
        folder = base / path.lstrip("/")
        yield from (place for place in (folder, *folder.parents) if place == base or base in place.parents)


def _quotas(folder: Path) -> Iterator[float]:
    second = _text(folder / "cpu.max").split()
    first = [_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")]
    for pair in (second, first):
        if len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() and int(pair[1]):
            yield int(pair[0]) / int(pair[1])


def _text(path: Path) -> str:
    """Return the stripped text of a file of the system, "" where it isn't there or may not be read."""
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
