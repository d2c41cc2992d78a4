"""Instances that go to the GPUs with the most free memory: the two parameters of a configuration that ask for it.

Owns their names, values and mistakes, and what becomes of the instance groups. The choice itself is `devices.placement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from naiad.config.findings import Finding
from naiad.config.options.kinds import Bytes
from naiad.devices.placement import place_by_free_memory
from naiad.proto import Message

PLACEMENT_PARAMETER = "gpu_placement"
MEMORY_PARAMETER = "gpu_memory_bytes"
_EACH, _FREE_MEMORY = "each", "free_memory"


def gpu_placement_findings(config: Message) -> Iterator[Finding]:
    """Yield a mistake at a time in the two parameters."""
    placement = _value(config, PLACEMENT_PARAMETER)
    if placement not in (None, _EACH, _FREE_MEMORY):
        text = f"'{PLACEMENT_PARAMETER}' is '{placement}', must be {_EACH} or {_FREE_MEMORY}"
        yield Finding(f"model '{config.name}': parameter {text}", ("parameters",))
    memory = _value(config, MEMORY_PARAMETER)
    if memory is not None and not _bytes(memory):
        text = f"'{MEMORY_PARAMETER}' is '{memory}', must be {Bytes().allowed}, over 0"
        yield Finding(f"model '{config.name}': parameter {text}", ("parameters",))


def is_by_free_memory(config: Message) -> bool:
    """Return whether groups on GPUs that name none have `count` instances in all, where most memory is free."""
    return _value(config, PLACEMENT_PARAMETER) == _FREE_MEMORY


def spread_by_free_memory(config: Message, gpus: Sequence[int], free_bytes: Mapping[int, int]) -> None:
    """Put each group on GPUs that names none on some of `gpus`; one whose GPUs get unequal numbers becomes several groups."""
    free = {gpu: free_bytes.get(gpu, 0) for gpu in gpus}
    size = _bytes(_value(config, MEMORY_PARAMETER) or "")
    groups = list(config.instance_group)
    del config.instance_group[:]
    for group in groups:
        if group.kind != group.KIND_GPU or group.gpus or not free:
            config.instance_group.add().CopyFrom(group)
            continue
        placed = place_by_free_memory(group.count, free, size)
        for gpu, number in placed.items():
            free[gpu] -= number * size
        for number in sorted(set(placed.values()), reverse=True):
            made = config.instance_group.add()
            made.CopyFrom(group)
            made.count = number
            made.gpus.extend(gpu for gpu, count in placed.items() if count == number)


def _value(config: Message, name: str) -> str | None:
    return config.parameters[name].string_value if name in config.parameters else None


def _bytes(text: str) -> int:
    """Return the number of bytes, 0 for what is none."""
    try:
        return Bytes().parse(text)
    except ValueError:
        return 0
