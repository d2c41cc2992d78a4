"""What is wrong with the parameters of batching without numbers: `naiad_adaptive_batching` and `naiad_latency_target_ms`."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config.compile.scheduling import ADAPTIVE_PARAMETER, LATENCY_TARGET_PARAMETER, says_nothing_of_sizes
from naiad.config.findings import Finding
from naiad.proto import Message

_LONGEST_MS = 60_000


def adaptive_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for each mistake."""
    if ADAPTIVE_PARAMETER in config.parameters:
        value = config.parameters[ADAPTIVE_PARAMETER].string_value
        if value not in ("on", "off"):
            yield _finding(config, ADAPTIVE_PARAMETER, f"is '{value}', must be on or off")
        elif value == "on":
            yield from _unfit(config, ADAPTIVE_PARAMETER)
    if LATENCY_TARGET_PARAMETER in config.parameters:
        value = config.parameters[LATENCY_TARGET_PARAMETER].string_value
        if not _is_target(value):
            yield _finding(
                config,
                LATENCY_TARGET_PARAMETER,
                f"is '{value}', must be a number of milliseconds above 0, {_LONGEST_MS} at most",
            )
        yield from _unfit(config, LATENCY_TARGET_PARAMETER)


def _unfit(config: Message, parameter: str) -> Iterator[Finding]:
    """Yield why a model's batches can't follow what is measured, if they can't."""
    batching = config.dynamic_batching
    adaptive = config.parameters[ADAPTIVE_PARAMETER].string_value if ADAPTIVE_PARAMETER in config.parameters else "on"
    if not config.HasField("dynamic_batching"):
        yield _finding(config, parameter, "needs dynamic_batching, which the model doesn't have")
    elif config.max_batch_size < 2:
        yield _finding(config, parameter, f"needs a max_batch_size above 1, which is {config.max_batch_size}")
    elif not says_nothing_of_sizes(config):
        yield _finding(
            config,
            parameter,
            "needs dynamic_batching without numbers, which has max_queue_delay_microseconds "
            f"{batching.max_queue_delay_microseconds} and preferred_batch_size {list(batching.preferred_batch_size)}",
        )
    elif parameter != ADAPTIVE_PARAMETER and adaptive == "off":
        yield _finding(config, parameter, f"contradicts '{ADAPTIVE_PARAMETER}', which is off")


def _is_target(text: str) -> bool:
    try:
        return 0 < float(text) <= _LONGEST_MS
    except ValueError:
        return False


def _finding(config: Message, parameter: str, text: str) -> Finding:
    return Finding(f"parameter '{parameter}' for {config.name} {text}", ("parameters", parameter, "string_value"))
