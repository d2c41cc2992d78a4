"""Drives a scheduler by a trace and keeps what became of each request. Owns the run; `costs` and `traces` are its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean

import numpy as np
from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock

from naiad.errors import InferenceServerError
from naiad.request.batch import Batch, Instance, Scheduler
from naiad.request.request import InferRequest
from naiad.request.request import Sequence as SequenceOf
from simulator.costs import CostTable
from simulator.traces import Arrival

MakeScheduler = Callable[[Sequence[FakeInstance], ManualClock], Scheduler]
_FOREVER_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """A batch that an instance had: `indices` are its requests' places in the trace."""

    instance: str
    started_ns: int
    ended_ns: int
    size: int
    indices: tuple[int, ...]


@dataclass(slots=True)
class Record:
    """What a simulation saw. `latencies_ns` and `errors` by the requests' places in the trace; `answered` in their order."""

    arrivals: Sequence[Arrival]
    runs: list[Run] = field(default_factory=list)
    latencies_ns: dict[int, int] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)
    end_counts: Counter[int] = field(default_factory=Counter)
    errors: dict[int, InferenceServerError] = field(default_factory=dict)
    idle_while_queued: list[int] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """The sizes of the batches in the order of their start."""
        return [run.size for run in self.runs]

    def mean_ms(self) -> float:
        """Return the mean latency of what was answered."""
        return mean(self.latencies_ns.values()) / 1e6

    def p99_ms(self) -> float:
        """Return the latency that 99 of 100 answers kept."""
        latencies = sorted(self.latencies_ns.values())
        return latencies[int(len(latencies) * 0.99)] / 1e6

    def within(self, target_ms: float) -> int:
        """Return how many were answered within `target_ms`."""
        return sum(latency <= target_ms * 1e6 for latency in self.latencies_ns.values())


class SimulatedInstance(FakeInstance):
    """Has each batch for as long as `costs` says and ends it by itself."""

    def __init__(
        self, name: str, clock: ManualClock, costs: CostTable, record: Record, places: dict[InferRequest, int]
    ) -> None:
        super().__init__(name)
        self._clock, self._costs, self._record, self._places = clock, costs, record, places

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        super().submit(batch, on_done)
        duration_ns, now = self._costs.run_ns(batch.size), self._clock.now
        indices = tuple(self._places[request] for request in batch.requests if not request.is_padding)
        self._record.runs.append(Run(self.name, now, now + duration_ns, batch.size, indices))
        self._clock.call_later(duration_ns, self.finish)


def simulate(make: MakeScheduler, arrivals: Sequence[Arrival], costs: CostTable, instance_count: int = 1) -> Record:
    """Run `arrivals`, ascending, through the scheduler that `make` returns, until it has nothing left to do.

    What arrives at the same nanosecond arrives in the same turn of the loop.
    """
    clock, record, places = ManualClock(), Record(arrivals), dict[InferRequest, int]()
    instances = [SimulatedInstance(f"simulated_{i}", clock, costs, record, places) for i in range(instance_count)]
    scheduler = make(instances, clock)
    start = clock.now
    for index, arrival in enumerate(arrivals):
        if start + arrival.at_ns > clock.now:
            _look(clock, scheduler, instances, record)
            clock.advance(start + arrival.at_ns - clock.now)
        _send(index, arrival, scheduler, clock, record, places)
    _look(clock, scheduler, instances, record)
    clock.advance(_FOREVER_NS)
    assert (scheduler.pending_count(), scheduler.running_count()) == (0, 0), "something never ended"
    return record


def _look(clock: ManualClock, scheduler: Scheduler, instances: Sequence[FakeInstance], record: Record) -> None:
    """Note the time when an instance has nothing to do though something is queued, after the turn."""
    clock.settle()
    if scheduler.pending_count() and not all(instance.is_busy for instance in instances):
        record.idle_while_queued.append(clock.now)


def _send(
    index: int, arrival: Arrival, scheduler: Scheduler, clock: ManualClock, record: Record, places: dict[InferRequest, int]
) -> None:
    probe = Probe({"X": np.zeros((arrival.size, arrival.key), np.float32)}, arrival.size)
    request, sent_ns = probe.request, clock.now
    request.priority, request.timeout_us = arrival.priority, arrival.timeout_us
    if arrival.sequence:
        request.sequence = SequenceOf(arrival.sequence, arrival.is_start, arrival.is_end)
    places[request] = index

    def end() -> None:
        record.end_counts[index] += 1
        record.answered.append(index)
        if probe.error is not None:
            record.errors[index] = probe.error
        else:
            record.latencies_ns[index] = clock.now - sent_ns

    probe.on_end = end
    try:
        scheduler.enqueue(request)
    except InferenceServerError as error:
        record.errors[index] = error
        record.end_counts[index] += 1
        request.responder.refuse()
