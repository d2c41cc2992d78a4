"""The dynamic batcher in simulations: by its numbers, and adaptive."""

from __future__ import annotations

from collections.abc import Sequence

from fake_execution import FakeInstance
from manual_clock import ManualClock

from naiad.config.plan import DynamicBatchingPlan
from naiad.schedulers.dynamic.adaptive.policy import AdaptivePolicy
from naiad.schedulers.dynamic.policy import BatchRules
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from simulator.running import MakeScheduler


def fixed(plan: DynamicBatchingPlan) -> MakeScheduler:
    """Return what makes the batcher that goes by the numbers of `plan`."""

    def make(instances: Sequence[FakeInstance], clock: ManualClock) -> DynamicScheduler:
        return DynamicScheduler(instances, clock, plan)

    return make


def adaptive(plan: DynamicBatchingPlan, target_ms: float = 0) -> MakeScheduler:
    """Return what makes the batcher that learns; `plan` has no delay."""

    def make(instances: Sequence[FakeInstance], clock: ManualClock) -> DynamicScheduler:
        def scheduler_counts() -> tuple[int, int]:
            return scheduler.instance_counts()

        policy = AdaptivePolicy(BatchRules.of(plan), scheduler_counts, round(target_ms * 1e6))
        scheduler = DynamicScheduler(instances, clock, plan, policy=policy, observers=[policy])
        return scheduler

    return make
