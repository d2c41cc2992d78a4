"""How long a run of so many items takes: measured tables and made-up ones. Owns these values, nothing that uses them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class CostTable:
    """`points` are pairs of a batch size, ascending, and the milliseconds of one run; `machine` says where they are from."""

    name: str
    points: tuple[tuple[int, float], ...]
    machine: str

    def run_ns(self, size: int) -> int:
        """Return the time of a run of `size` items: straight lines between the points, proportional beyond both ends."""
        sizes = [point[0] for point in self.points]
        index = bisect_left(sizes, size)
        if index == 0 or index == len(sizes):
            nearest, ms = self.points[0 if index == 0 else -1]
            return round(ms * MS * (1 if size < nearest else size / nearest))
        (low, low_ms), (high, high_ms) = self.points[index - 1], self.points[index]
        return round(MS * (low_ms + (high_ms - low_ms) * (size - low) / (high - low)))

    def capacity_per_s(self, max_batch_size: int, instance_count: int = 1) -> float:
        """Return the most items per second, with the batch size that is best for it."""
        return instance_count * max(size * 1e9 / self.run_ns(size) for size in range(1, max_batch_size + 1))


_MACHINE = "AMD EPYC, one core shared with others, onnxruntime 1.32, one thread, median of 5 to 50 runs, 2026-12-03"
MAGIKA = CostTable("magika 1.0.3", ((1, 8.488), (2, 16.592), (4, 35.222), (8, 68.272), (16, 231.17), (32, 772.799)), _MACHINE)
"""Each item costs more than the one before: larger batches are of no use."""
SILERO_VAD = CostTable("silero-vad", ((1, 0.11), (2, 0.169), (4, 0.27), (8, 0.487), (16, 0.93), (32, 1.84)), _MACHINE)
WIDE_MLP = CostTable(
    "8 layers of 2048x2048", ((1, 7.149), (2, 7.256), (4, 8.051), (8, 10.687), (16, 14.817), (32, 25.959)), _MACHINE
)
"""Bound by reading its weights, as most models on a GPU are: a large batch costs little more than a small one."""
SMALL_MLP = CostTable(
    "8 layers of 512x512", ((1, 0.118), (2, 0.122), (4, 0.168), (8, 0.323), (16, 0.657), (32, 1.366)), _MACHINE
)
RECORDED = (MAGIKA, SILERO_VAD, WIDE_MLP, SMALL_MLP)
FLAT = CostTable("flat", ((1, 10.0), (32, 10.0)), "made up: a run costs the same whatever is in it")
