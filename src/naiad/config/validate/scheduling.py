"""What is wrong with the dynamic batcher's settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from naiad.config.compile.scheduling import EARLY_REFUSAL_PARAMETER
from naiad.config.findings import Finding
from naiad.proto import Message


def scheduling_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for each mistake. A config of any other scheduler, or of none, has none here."""
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    for field, texts in (
        ("preferred_batch_size", size_texts(batching.preferred_batch_size, config.max_batch_size)),
        ("default_priority_level", _priority_texts(batching)),
        ("preserve_ordering", _ordering_texts(batching)),
    ):
        for text in texts:
            yield Finding(f"dynamic batching {text} for {config.name}", ("dynamic_batching", field))


def early_refusal_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for a wrong value of the parameter `naiad_early_refusal`, and for a right one that asks in vain."""
    if EARLY_REFUSAL_PARAMETER not in config.parameters:
        return
    value = config.parameters[EARLY_REFUSAL_PARAMETER].string_value
    path = ("parameters", EARLY_REFUSAL_PARAMETER, "string_value")
    if value not in ("on", "off"):
        yield Finding(f"parameter '{EARLY_REFUSAL_PARAMETER}' for {config.name} is '{value}', must be on or off", path)
    elif value == "on" and not config.HasField("dynamic_batching"):
        yield Finding(f"parameter '{EARLY_REFUSAL_PARAMETER}' for {config.name} is 'on', which needs dynamic_batching", path)


def size_texts(sizes: Sequence[int], max_batch_size: int) -> Iterator[str]:
    """Yield what is wrong with preferred batch sizes, without the scheduler they are of."""
    for size in sizes:
        if size <= 0:
            yield f"preferred size must be positive, got {size}"
        elif size > max_batch_size:
            yield f"preferred size must be <= max batch size, got {size} with max_batch_size {max_batch_size}"


def _priority_texts(batching: Message) -> Iterator[str]:
    levels = batching.priority_levels
    if levels > 0 and not 1 <= batching.default_priority_level <= levels:
        yield f"default priority level must be in range [1, {levels}], got {batching.default_priority_level}"
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            allowed = f"in range [1, {levels}]" if levels else "absent as priority_levels is 0"
            yield f"keys of priority_queue_policy must be {allowed}, got {level}"


def _ordering_texts(batching: Message) -> Iterator[str]:
    """An answer can't keep its place when its request may be overtaken: by priority, or because it was late."""
    if not batching.preserve_ordering:
        return
    if batching.priority_levels > 1:
        yield f"preserve_ordering needs at most 1 priority level, got {batching.priority_levels}"
    policies = [("default_queue_policy", batching.default_queue_policy)]
    policies += [(f"priority_queue_policy[{level}]", policy) for level, policy in batching.priority_queue_policy.items()]
    for name, policy in policies:
        if policy.default_timeout_microseconds and policy.timeout_action == policy.DELAY:
            yield f"preserve_ordering excludes a timeout with action DELAY, which {name} has"
