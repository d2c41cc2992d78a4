"""What the system tells of memory: how much a process holds, and whether processes were killed for lack of it.

Owns the reading of /proc and of control groups. Where they aren't, the answer is None.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def resident_bytes(pid: int, proc: Path = _PROC) -> int | None:
    """Return how much memory a process holds, with what it shares, in bytes; None for one that has ended."""
    try:
        pages = int((proc / str(pid) / "statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def oom_kill_count(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return how many processes the kernel has killed for lack of memory, in this control group or, where groups don't tell, on
    the machine; None when that can't be known.
    """
    for path in (*_group_files(proc, cgroups), proc / "vmstat"):
        count = _counter(path)
        if count is not None:
            return count
    return None


def _group_files(proc: Path, cgroups: Path) -> list[Path]:
    """Return the files that may count for this process' group: version 2 first; within a container its group is the root."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in sorted(lines, key=len):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            files += [cgroups / path[1:] / "memory.events", cgroups / "memory.events"]
        elif "memory" in controllers.split(","):
            files += [cgroups / "memory" / path[1:] / "memory.oom_control", cgroups / "memory" / "memory.oom_control"]
    return files


def _counter(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return counts[0] if counts else None
