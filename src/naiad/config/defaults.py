"""The defaults that every configuration gets before it is validated, so that `/config` shows what is really in force.

Owns defaults that don't depend on the model file; those that do are `config.autocomplete`'s. Doing it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from naiad.config.backend_name import ENSEMBLE_PLATFORM
from naiad.config.compile.gpu_placement import is_by_free_memory, spread_by_free_memory
from naiad.devices.inventory import UsableGpus
from naiad.proto import Message

SEQUENCE_IDLE_US = 1_000_000
_NO_GPUS = UsableGpus()


def normalise(
    config: Message,
    *,
    default_instance_count: int,
    gpus: UsableGpus = _NO_GPUS,
    is_auto_gpu: bool = True,
    free_memory: Callable[[], Mapping[int, int]] = dict,
) -> None:
    """Fill in what a ModelConfig leaves open.

    `default_instance_count` is the backend's number of instances for a KIND_CPU group without a count, `is_auto_gpu` whether
    KIND_AUTO means GPUs to it where there are any. `free_memory` returns the free bytes of each GPU now; it is asked only for a
    config that wants its instances where most is free.
    """
    _complete_version_policy(config.version_policy)
    _complete_scheduling(config)
    if config.platform == ENSEMBLE_PLATFORM or config.HasField("ensemble_scheduling"):
        return
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(name):
            getattr(config.optimization, name).enable = True
    _complete_groups(config, default_instance_count, gpus.ids, is_auto_gpu=is_auto_gpu)
    if is_by_free_memory(config):
        spread_by_free_memory(config, gpus.ids, free_memory())
    for group in config.instance_group:
        if group.kind == group.KIND_GPU and not group.gpus:
            group.gpus.extend(gpus.ids)


def _complete_version_policy(policy: Message) -> None:
    """Serve the latest version unless told otherwise; `latest { }` would else serve none."""
    choice = policy.WhichOneof("policy_choice")
    if choice is None or (choice == "latest" and policy.latest.num_versions == 0):
        policy.latest.num_versions = 1


def _complete_scheduling(config: Message) -> None:
    choice = config.WhichOneof("scheduling_choice")
    if choice == "dynamic_batching":
        _complete_preferred_sizes(config.dynamic_batching, config.max_batch_size)
    elif choice == "sequence_batching":
        batching = config.sequence_batching
        batching.max_sequence_idle_microseconds = batching.max_sequence_idle_microseconds or SEQUENCE_IDLE_US
        if batching.WhichOneof("strategy_choice") == "oldest":
            _complete_preferred_sizes(batching.oldest, config.max_batch_size)


def _complete_preferred_sizes(batching: Message, max_batch_size: int) -> None:
    if not batching.preferred_batch_size and max_batch_size > 0:
        batching.preferred_batch_size.append(max_batch_size)


def _complete_groups(config: Message, default_instance_count: int, gpus: Sequence[int], *, is_auto_gpu: bool) -> None:
    """Name the groups and settle their kind and count. Without any group there is one called as the model."""
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == group.KIND_AUTO:
            has_gpus = bool(gpus) and set(group.gpus) <= set(gpus)
            group.kind = group.KIND_GPU if has_gpus and is_auto_gpu else group.KIND_CPU
        if group.count == 0:
            group.count = default_instance_count if group.kind == group.KIND_CPU else 1
