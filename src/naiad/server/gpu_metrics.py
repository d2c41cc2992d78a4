"""Triton's metric families of GPUs.

Owns their names and how old a reading may be. The driver is asked on a thread, since it takes milliseconds: a scrape shows the
last reading and has the next one made. Without GPUs there are no families.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from naiad.devices.nvml import GpuReading
from naiad.execution.threads import Completion, Job
from naiad.observability.prometheus_text import Family, Kind, Sample

_FAMILIES = (
    ("nv_gpu_utilization", "Share of the time that the GPU computed, 0.0 to 1.0", attrgetter("utilization")),
    ("nv_gpu_memory_total_bytes", "Memory of the GPU", attrgetter("memory_total_bytes")),
    ("nv_gpu_memory_used_bytes", "Memory of the GPU in use", attrgetter("memory_used_bytes")),
    ("nv_gpu_power_usage", "Power that the GPU draws, in watts", attrgetter("power_watts")),
    ("nv_gpu_power_limit", "Power that the GPU may draw, in watts", attrgetter("power_limit_watts")),
)

_log = logging.getLogger("naiad.metrics")


class GpuMetrics:
    """Reads at most every `interval_ms` milliseconds. Loop thread only; `read` blocks, `submit` runs a job on a thread."""

    def __init__(
        self,
        read: Callable[[], Sequence[GpuReading]],
        submit: Callable[[Job], None],
        interval_ms: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Take the first reading, from which energy counts; it blocks."""
        self._read = read
        self._submit = submit
        self._interval_ns = interval_ms * 1_000_000
        self._now_ns = now_ns
        self._read_at_ns = now_ns()
        self._is_reading = False
        self._readings = tuple(read())
        self._energy_before = {reading.uuid: reading.energy_joules or 0.0 for reading in self._readings}

    def families(self) -> Iterator[Family]:
        """Yield the families with the last reading; a value that a GPU doesn't tell is left out."""
        self._refresh()
        for name, text, value in _FAMILIES:
            yield Family(name, Kind.GAUGE, text, list(self._samples(value)))
        yield Family(
            "nv_energy_consumption",
            Kind.COUNTER,
            "Energy that the GPU has used since the server's start, in joules",
            list(self._samples(self._energy)),
        )

    def _energy(self, reading: GpuReading) -> float | None:
        if reading.energy_joules is None:
            return None
        return max(0.0, reading.energy_joules - self._energy_before[reading.uuid])

    def _samples(self, value: Callable[[GpuReading], float | None]) -> Iterator[Sample]:
        for reading in self._readings:
            known = value(reading)
            if known is not None:
                yield Sample(known, {"gpu_uuid": reading.uuid})

    def _refresh(self) -> None:
        now_ns = self._now_ns()
        if self._is_reading or now_ns - self._read_at_ns < self._interval_ns:
            return
        self._is_reading = True
        self._submit(self._read_on_thread)

    def _read_on_thread(self) -> Completion:
        try:
            readings = tuple(self._read())
        except Exception:
            # A fault must neither end the metrics nor be hidden: the last values are repeated, and it is tried again.
            _log.exception("the use of GPUs can't be read")
            readings = self._readings

        def finish() -> None:
            self._readings, self._is_reading, self._read_at_ns = readings, False, self._now_ns()

        return finish
