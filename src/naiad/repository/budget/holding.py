"""One model version in the budget: what it takes, whether it is in memory, and what has become of its loads on demand.

Owns these facts. What is done with them is the keeper's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto

from naiad.repository.budget.size import Need
from naiad.repository.loader import PreparedModel
from naiad.repository.model import Copies, LoadedWorkers, Model

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_REREAD_S = 4.0


class Phase(Enum):
    """Where a version is. Only PARKED and WAITING take no memory."""

    PARKED = auto()
    WAITING = auto()  # for room, as requests want it
    LOADING = auto()
    RESIDENT = auto()
    LEAVING = auto()  # memory


@dataclass(slots=True, eq=False)
class Holding:
    """See the module. `model` is None until its first load has ended.

    `fresh_bytes` is what it takes when it has just been loaded: the size of its files until that is measured. `grown_bytes` is
    what it takes now when that is known. `waiting_since_s` (loop time) is when requests began to want it; `retry_at_s` when it
    may be loaded again after `failures` in a row, `failure` the last one's reason.
    """

    prepared: PreparedModel
    number: int
    need: Need
    phase: Phase = Phase.PARKED
    model: Model | None = None
    fresh_bytes: int = 0
    grown_bytes: int = 0
    is_measured: bool = False
    resident_since_ms: int = 0
    waiting_since_s: float = 0.0
    is_watched: bool = False
    is_gone: bool = False
    eviction_count: int = 0
    demand_load_count: int = 0
    failures: int = 0
    failure: str = ""
    retry_at_s: float = 0.0
    patience: asyncio.TimerHandle | None = field(default=None, repr=False)
    _read_at_s: float = 0.0

    @property
    def name(self) -> str:
        """The model and its version, for people."""
        return f"model '{self.prepared.source.name}' version {self.number}"

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, or would."""
        return self.need.declared_bytes or self.grown_bytes or self.fresh_bytes

    @property
    def taken_bytes(self) -> int:
        """What it takes now."""
        return 0 if self.phase in (Phase.PARKED, Phase.WAITING) else self.size_bytes

    @property
    def last_used_ms(self) -> int:
        """When it was last used or loaded, in milliseconds since 1970."""
        used_ms = 0 if self.model is None else self.model.statistics.last_inference_ms
        return max(used_ms, self.resident_since_ms)

    @property
    def is_idle(self) -> bool:
        """Whether it is in memory, in order, and has no request queued, running or still to be answered."""
        model = self.model
        return model is not None and self.phase is Phase.RESIDENT and not model.down and not self.has_requests

    @property
    def has_requests(self) -> bool:
        """Whether a request is queued, runs or is still to be answered, or is to come of a sequence that has begun."""
        model = self.model
        return model is not None and model.is_in_use

    def measured(self, copies: Copies, growth_bytes: int) -> None:
        """Note what the loaded copies take: workers what the system says of them; others what the process has grown by when
        they were first loaded, and no less than their files. Later loads use memory again that was given back, and tell less.
        """
        self.grown_bytes = 0
        if isinstance(copies, LoadedWorkers):
            held = sum(started.process.resident_bytes() or 0 for started in copies.started)
            self.fresh_bytes = held or self.fresh_bytes
        elif not self.is_measured:
            self.fresh_bytes = max(self.fresh_bytes, growth_bytes)
        self.is_measured = self.is_measured or bool(growth_bytes) or isinstance(copies, LoadedWorkers)

    def read_workers(self, now_s: float) -> bool:
        """Look again at what its workers take, unless that has been done lately; return whether it was done."""
        if self.model is None or self.phase is not Phase.RESIDENT or now_s < self._read_at_s + _REREAD_S:
            return False
        self._read_at_s = now_s
        self.grown_bytes = sum(size_bytes for _, size_bytes in self.model.worker_memory())
        return True

    def note_failure(self, reason: str, now_s: float) -> None:
        """Let a load on demand wait longer after each failure, so that it doesn't cost the others their places all the time."""
        self.failure = reason
        self.retry_at_s = now_s + min(_FIRST_PAUSE_S * 2**self.failures, _LONGEST_PAUSE_S)
        self.failures = min(self.failures + 1, 16)
