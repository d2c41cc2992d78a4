"""Which scheduler a model version has: its configuration says so, and Triton's variables for tests may hold it back."""

from __future__ import annotations

import os

from naiad.clock import Clock
from naiad.config.plan import ModelPlan
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Scheduler
from naiad.schedulers.direct.scheduler import DirectScheduler
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.ensemble.members import Members
from naiad.schedulers.ensemble.scheduler import EnsembleScheduler
from naiad.schedulers.hold import read_hold
from naiad.schedulers.sequence.scheduler import SequenceScheduler


def made_scheduler(plan: ModelPlan, clock: Clock, members: Members | None, statistics: ModelStatistics) -> Scheduler:
    """Return the scheduler of a model version, without instances. Raises INVALID_ARGUMENT for a wrong variable."""
    if plan.ensemble is not None:
        assert members is not None
        return EnsembleScheduler(plan, members, statistics)
    if plan.sequence_batching is not None:
        return SequenceScheduler(clock, plan, statistics.record_padding, read_hold(os.environ))
    if plan.dynamic_batching is not None:
        return DynamicScheduler([], clock, plan.dynamic_batching, read_hold(os.environ))
    return DirectScheduler([], clock)
