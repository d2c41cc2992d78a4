"""What the worker instances of one model version share, and what the whole server's share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from naiad.backends.base import WorkerProgram
from naiad.config.plan import ModelPlan
from naiad.devices.devices import Devices
from naiad.execution.process.codec.decode import ResponseDecoder
from naiad.execution.process.codec.encode import BatchEncoder
from naiad.execution.process.life.settings import WorkerSettings
from naiad.execution.process.load_waits import LoadWaits
from naiad.execution.process.waiting import WaitGraph
from naiad.execution.threads import ThreadPool
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Instance
from naiad.request.call import InferCall
from naiad.request.responder import ResponseSink
from naiad.request.service import InferenceService, InferHandle


class MetricsKeeper(Protocol):
    """Who keeps the metrics that models make. An owner is whatever the metrics go with."""

    def apply(self, owner: object, message: dict[str, Any]) -> None:
        """Make or change a metric. Raises InferenceServerError when it can't be so."""

    def value(self, family: str, labels: dict[str, str]) -> float:
        """Return a metric's value. Raises InferenceServerError when there is none."""

    def drop_owner(self, owner: object) -> None:
        """Forget the metrics that only `owner` has."""


@dataclass(slots=True)
class WorkerHost:
    """What all workers of a server need of it. `service` is set by who assembles the server, before any model is loaded.

    `infer` does for calls in the service of a request what the service's does, also while the server drains; None: the service.
    """

    loop: asyncio.AbstractEventLoop
    pool: ThreadPool
    settings: WorkerSettings
    metrics: MetricsKeeper
    devices: Devices = field(default_factory=Devices)
    service: InferenceService = field(init=False)
    infer: Callable[[InferCall, ResponseSink], InferHandle] | None = None
    waits: WaitGraph = field(default_factory=WaitGraph)
    load_waits: LoadWaits = field(default_factory=LoadWaits)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """A model's own limits, from its config's parameters; 0 is none.

    `execution_timeout_s` is how long one call of `execute` may take, `allows_override` whether a request may shorten it with
    its parameter `execution_timeout_ms`. `memory_bytes` is the resident memory over which a worker is replaced between batches.
    `retries_on_death`: a request whose worker died is run once more, alone.
    """

    execution_timeout_s: float = 0.0
    allows_override: bool = False
    memory_bytes: int = 0
    retries_on_death: bool = False


class InstanceOwner(Protocol):
    """Who joins instances to a scheduler. Loop thread only."""

    restart_counts: Counter[str]
    """Deaths of workers by reason."""
    poison_count: int
    """Requests whose worker died twice."""

    def on_down(self, instance: Instance, reason: str, *, is_lasting: bool) -> None:
        """The instance has no worker: it takes no batch until `on_up`. `is_lasting`: not soon."""

    def on_up(self, instance: Instance) -> None:
        """The instance takes batches again."""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the instances of one model version share."""

    plan: ModelPlan
    program: WorkerProgram
    limits: WorkerLimits
    host: WorkerHost
    statistics: ModelStatistics
    encoder: BatchEncoder
    decoder: ResponseDecoder
    owner: InstanceOwner
