"""Which scheduler a model version has: its configuration says so, and Triton's variables for tests may hold it back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from naiad.clock import Clock
from naiad.config.plan import DynamicBatchingPlan, ModelPlan, QueuePolicy
from naiad.errors import invalid_argument
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Scheduler
from naiad.schedulers.custom.policy import BatchStrategy, StrategyPolicy
from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.dynamic.adaptive.policy import AdaptivePolicy
from naiad.schedulers.dynamic.policy import BatchRules
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.ensemble.members import Members
from naiad.schedulers.ensemble.scheduler import EnsembleScheduler
from naiad.schedulers.hold import read_hold
from naiad.schedulers.sequence.scheduler import SequenceScheduler

Strategy = tuple[BatchStrategy, str]
"""What decides in place of the dynamic batcher's rules who joins a batch, and the path of its file."""

# One request an execution, as the direct scheduler has it, by the rules of the dynamic batcher's queue.
_ONE_BY_ONE = DynamicBatchingPlan(
    max_batch_size=0,
    preferred_batch_sizes=(),
    max_queue_delay_us=0,
    preserve_ordering=False,
    levels=0,
    default_level=0,
    default_policy=QueuePolicy(),
    policies={},
    ragged_inputs=frozenset(),
    variable_inputs=(),
    has_optional_inputs=False,
)


def made_scheduler(
    plan: ModelPlan,
    clock: Clock,
    members: Members | None,
    statistics: ModelStatistics,
    strategy: Strategy | None = None,
    client_weights: Mapping[str, int] | None = None,
) -> Scheduler:
    """Return the scheduler of a model version, without instances; `strategy` is the batch strategy in its folder. Where clients
    share models by `client_weights`, a model without dynamic batching has the dynamic batcher's queue, too, but no batches.

    Raises INVALID_ARGUMENT for a wrong variable, and for a latency target beside a batch strategy.
    """
    if plan.ensemble is not None:
        assert members is not None
        return EnsembleScheduler(plan, members, statistics)
    if plan.sequence_batching is not None:
        return SequenceScheduler(clock, plan, statistics.record_padding, read_hold(os.environ))
    if plan.dynamic_batching is not None:
        batching = replace(plan.dynamic_batching, client_weights=client_weights)
        if strategy is None:
            return _dynamic_scheduler(plan, clock, batching)
        if batching.latency_target_us:
            text = "its batch strategy decides, remove one of both"
            raise invalid_argument(f"parameter 'naiad_latency_target_ms' for {plan.name} has no effect: {text}")
        policy = StrategyPolicy(*strategy, batching, plan.inputs_by_name, clock)
        statistics.strategy_faults = policy.faults
        return DynamicScheduler([], clock, batching, read_hold(os.environ), policy)
    if client_weights is not None:
        return DynamicScheduler([], clock, replace(_ONE_BY_ONE, client_weights=client_weights))
    return DirectScheduler([], clock)


def _dynamic_scheduler(plan: ModelPlan, clock: Clock, batching: DynamicBatchingPlan) -> DynamicScheduler:
    hold = read_hold(os.environ)
    if not batching.is_adaptive:
        return DynamicScheduler([], clock, batching, hold)

    def instances() -> tuple[int, int]:
        return scheduler.instance_counts()

    policy = AdaptivePolicy(BatchRules.of(batching), instances, batching.latency_target_us * 1000, plan.name)
    scheduler = DynamicScheduler([], clock, batching, hold, policy, [policy])
    return scheduler
