"""Sequences that are under way, and the slots they hold.

Owns which sequence has which slot and which ones wait for one. Doesn't own requests' execution: a lane is an instance's part.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Protocol

from naiad.request.batch import Instance
from naiad.request.request import InferRequest
from naiad.schedulers.sequence.states import SequenceState


class Lane(Protocol):
    """An instance as slots see it: it runs the requests of the sequences that hold its slots."""

    instance: Instance
    number: int
    slots: list[LiveSequence | None]

    def wake(self, sequence: LiveSequence) -> None:
        """See to `sequence`, which holds a slot here: it has got a request, a slot, or lost its first request."""


class LiveSequence:
    """A sequence from its START to its end. `waiting` are its requests that no instance has got, in order; `running` is the one
    that an instance has. `lane` and `slot` say where it is served, None and -1 while it waits in the backlog. `is_closing`:
    its END is in, so that only a START may follow, which is the next sequence of this id and begins when this one is
    over. `is_repeated`: its one request has run and runs again. `deadline_ns` is until when it may wait in the backlog, 0 for
    ever.
    """

    __slots__ = ("active_ns", "deadline_ns", "id", "is_closing", "is_repeated", "lane", "running", "slot", "state", "waiting")

    def __init__(self, sequence_id: int | str, state: SequenceState | None) -> None:
        self.id = sequence_id
        self.state = state
        self.waiting: deque[InferRequest] = deque()
        self.running: InferRequest | None = None
        self.lane: Lane | None = None
        self.slot = -1
        self.is_closing = False
        self.is_repeated = False
        self.active_ns = 0
        self.deadline_ns = 0

    def take_own(self) -> list[InferRequest]:
        """Take out the waiting requests up to the END; what is left is the next sequence of this id."""
        own = []
        while self.waiting:
            own.append(self.waiting.popleft())
            if own[-1].sequence is not None and own[-1].sequence.is_end:
                break
        return own

    @property
    def is_busy(self) -> bool:
        """Whether a request of it waits or runs."""
        return bool(self.waiting) or self.running is not None


class Slots:
    """The free slots of all instances, the lowest number first and then the instances in order."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[tuple[int, int, Lane]] = []

    def add_all(self, lane: Lane) -> None:
        """Make every empty slot of `lane` free to take."""
        self.remove_all(lane)
        for slot, sequence in enumerate(lane.slots):
            if sequence is None:
                heappush(self._free, (slot, lane.number, lane))

    def remove_all(self, lane: Lane) -> None:
        """Let no further sequence come to `lane`."""
        self._free = sorted(entry for entry in self._free if entry[2] is not lane)

    def take(self, sequence: LiveSequence) -> bool:
        """Give `sequence` the first free slot; return False when there is none."""
        if not self._free:
            return False
        slot, _, lane = heappop(self._free)
        lane.slots[slot] = sequence
        sequence.lane, sequence.slot = lane, slot
        return True

    def give_back(self, sequence: LiveSequence, *, is_open: bool) -> None:
        """Empty the slot of `sequence`; with `is_open` the next sequence may take it."""
        lane, slot = sequence.lane, sequence.slot
        assert lane is not None
        lane.slots[slot] = None
        sequence.lane, sequence.slot = None, -1
        if is_open:
            heappush(self._free, (slot, lane.number, lane))
