"""Make the plans of schedulers: the dynamic batcher's and an ensemble's."""

from __future__ import annotations

from collections.abc import Iterable

from naiad.config.plan import DynamicBatchingPlan, EnsemblePlan, QueuePolicy, StepPlan, TensorPlan
from naiad.proto import Message

EARLY_REFUSAL_PARAMETER = "naiad_early_refusal"
"""The parameter of a configuration, "on" or "off", on without it."""

ADAPTIVE_PARAMETER = "naiad_adaptive_batching"
"""The parameter of a configuration, "on" or "off", on without it."""
LATENCY_TARGET_PARAMETER = "naiad_latency_target_ms"
"""The parameter of a configuration: in how many milliseconds 99 of 100 requests should be answered."""


def says_nothing_of_sizes(config: Message) -> bool:
    """Return whether `dynamic_batching` has no delay and no preferred size but the largest, which is the default."""
    batching = config.dynamic_batching
    has_sizes = any(size != config.max_batch_size for size in batching.preferred_batch_size)
    return not has_sizes and batching.max_queue_delay_microseconds == 0


def dynamic_batching_plan(config: Message, inputs: Iterable[TensorPlan]) -> DynamicBatchingPlan | None:
    """Return the plan, None for a model without the dynamic batcher."""
    if not config.HasField("dynamic_batching"):
        return None
    batching = config.dynamic_batching
    tensors = tuple(inputs)
    parameters = {name: parameter.string_value for name, parameter in config.parameters.items()}
    return DynamicBatchingPlan(
        max_batch_size=config.max_batch_size,
        preferred_batch_sizes=tuple(sorted(set(batching.preferred_batch_size))),
        max_queue_delay_us=batching.max_queue_delay_microseconds,
        preserve_ordering=batching.preserve_ordering,
        levels=batching.priority_levels,
        default_level=batching.default_priority_level,
        default_policy=_queue_policy(batching.default_queue_policy),
        policies={level: _queue_policy(policy) for level, policy in batching.priority_queue_policy.items()},
        ragged_inputs=frozenset(tensor.name for tensor in tensors if tensor.allow_ragged_batch),
        variable_inputs=tuple(tensor.name for tensor in tensors if tensor.is_variable and not tensor.allow_ragged_batch),
        has_optional_inputs=any(tensor.is_optional for tensor in tensors),
        refuses_early=parameters.get(EARLY_REFUSAL_PARAMETER) != "off",
        is_adaptive=config.max_batch_size > 1 and says_nothing_of_sizes(config) and parameters.get(ADAPTIVE_PARAMETER) != "off",
        latency_target_us=round(float(parameters.get(LATENCY_TARGET_PARAMETER, 0)) * 1000),
    )


def ensemble_plan(config: Message) -> EnsemblePlan | None:
    """Return the plan, None for a model that is no ensemble."""
    if not config.HasField("ensemble_scheduling"):
        return None
    steps = tuple(
        StepPlan(
            model_name=step.model_name,
            version="" if step.model_version < 0 else str(step.model_version),
            inputs=tuple(sorted(step.input_map.items())),
            outputs=dict(sorted(step.output_map.items())),
        )
        for step in config.ensemble_scheduling.step
    )
    return EnsemblePlan(steps, config.ensemble_scheduling.max_inflight_requests)


def _queue_policy(policy: Message) -> QueuePolicy:
    return QueuePolicy(
        timeout_us=policy.default_timeout_microseconds,
        is_delay=policy.timeout_action == policy.DELAY,
        allow_timeout_override=policy.allow_timeout_override,
        max_size=policy.max_queue_size,
    )
