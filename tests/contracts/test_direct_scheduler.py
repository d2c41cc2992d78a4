"""The default scheduler keeps the contract."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_contract import SchedulerContract
from seated import Seated

from naiad.clock import Clock
from naiad.request.batch import Instance, Scheduler
from naiad.schedulers.direct.scheduler import DirectScheduler


class TestDirectScheduler(SchedulerContract):
    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        return DirectScheduler(instances, clock)


class TestDirectSchedulerWithResources(SchedulerContract):
    def make(self, instances: Sequence[Instance], clock: Clock) -> Scheduler:
        return Seated(lambda seats: DirectScheduler(seats, clock), instances, clock)
