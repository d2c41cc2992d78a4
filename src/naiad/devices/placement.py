"""Which GPUs the instances of a model go to when its configuration leaves it to free memory.

Owns the choice, a pure function of what is free and what an instance takes.
"""

from __future__ import annotations

from collections.abc import Mapping


def place_by_free_memory(count: int, free_bytes: Mapping[int, int], instance_bytes: int) -> dict[int, int]:
    """Return how many of `count` instances go to each GPU, by its index; GPUs that get none aren't in it.

    `free_bytes` is by GPU. Each instance goes to where most is free after those before it, which take `instance_bytes` each; of
    GPUs with equally much to the one with fewer instances, then to the lower index. With `instance_bytes` 0, not known, they
    go around, the GPU with the most free memory first.
    """
    placed = dict.fromkeys(free_bytes, 0)
    for _ in range(count if placed else 0):
        chosen = min(placed, key=lambda gpu: _rank(gpu, placed[gpu], free_bytes[gpu], instance_bytes))
        placed[chosen] += 1
    return {gpu: number for gpu, number in sorted(placed.items()) if number}


def _rank(gpu: int, placed: int, free_bytes: int, instance_bytes: int) -> tuple[int, int, int]:
    if not instance_bytes:
        return placed, -free_bytes, gpu
    return instance_bytes * placed - free_bytes, placed, gpu
