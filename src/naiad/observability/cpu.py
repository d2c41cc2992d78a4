"""Use of the machine's CPU and memory, read from /proc.

Owns the reading and how old it may be. Reads when asked and never on a thread of its own. Only Linux has these files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger("naiad.metrics")


@dataclass(frozen=True, slots=True)
class CpuReading:
    """`utilization` is the share of all CPUs' time that wasn't idle, 0..1, since the reading before."""

    utilization: float
    memory_total_bytes: int
    memory_used_bytes: int


@dataclass(frozen=True, slots=True)
class _Ticks:
    """CPU time since the machine's start, in clock ticks."""

    total: int
    idle: int


class CpuSampler:
    """Reads at most every `interval_ms` milliseconds and repeats the last reading in between."""

    def __init__(self, interval_ms: int, now_ns: Callable[[], int] = time.monotonic_ns, proc: Path = Path("/proc")) -> None:
        """Take the first reading, whose utilization is 0. Raises OSError where there is no /proc, see `is_available`."""
        self._interval_ns = interval_ms * 1_000_000
        self._now_ns = now_ns
        self._proc = proc
        self._read_at_ns = now_ns()
        self._ticks = self._read_ticks()
        self._reading = CpuReading(0.0, *self._read_memory())

    @staticmethod
    def is_available(proc: Path = Path("/proc")) -> bool:
        """Return whether this machine tells its use of CPU and memory."""
        return (proc / "stat").is_file() and (proc / "meminfo").is_file()

    def read(self) -> CpuReading:
        """Return the present use. When it can't be read (no file descriptor left), return the last one and log it."""
        now_ns = self._now_ns()
        if now_ns - self._read_at_ns >= self._interval_ns:
            self._read_at_ns = now_ns
            try:
                self._sample()
            except OSError as error:
                _log.warning("use of CPU and memory can't be read, metrics repeat the last values: %s", error)
        return self._reading

    def _sample(self) -> None:
        before, self._ticks = self._ticks, self._read_ticks()
        total = self._ticks.total - before.total
        busy = total - (self._ticks.idle - before.idle)
        # Time that waits for I/O may go backwards by a tick, so the share is kept within its bounds.
        utilization = min(max(busy / total, 0.0), 1.0) if total > 0 else 0.0
        self._reading = CpuReading(utilization, *self._read_memory())

    def _read_ticks(self) -> _Ticks:
        with (self._proc / "stat").open("rb") as file:
            # cpu user nice system idle iowait irq softirq steal guest…: a guest's time is part of user's already.
            ticks = [int(field) for field in file.readline().split()[1:9]]
        return _Ticks(sum(ticks), sum(ticks[3:5]))

    def _read_memory(self) -> tuple[int, int]:
        """Return (total, used) in bytes; what the kernel could give back at once isn't used."""
        lines = (self._proc / "meminfo").read_text("ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return kib["MemTotal"] * 1024, (kib["MemTotal"] - kib["MemAvailable"]) * 1024
