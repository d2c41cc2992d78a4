"""The dynamic batcher keeps the contract: with batches of one and with larger ones."""

from __future__ import annotations

from collections.abc import Sequence

from batching_plans import make_plan
from scheduler_contract import SchedulerContract
from seated import Seated

from naiad.clock import Clock
from naiad.request.batch import Instance, Scheduler
from naiad.schedulers.dynamic.scheduler import DynamicScheduler


class TestBatchesOfOne(SchedulerContract):
    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        return DynamicScheduler(instances, clock, make_plan(max_batch_size=0, preferred=()))


class TestBatchesOfFour(SchedulerContract):
    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        return DynamicScheduler(instances, clock, make_plan(max_batch_size=4))


class TestBatchesOfFourWithResources(SchedulerContract):
    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        return Seated(lambda seats: DynamicScheduler(seats, clock, make_plan(max_batch_size=4)), instances, clock)
