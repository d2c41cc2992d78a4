"""What schedulers know of execution: a batch, why it was closed, and an instance that runs one at a time.

Owns these seams. Gathering tensors and splitting outputs belong to `execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from naiad.errors import InferenceServerError
from naiad.request.request import InferRequest


class CloseReason(Enum):
    """Why a batcher sent a batch as it was and no larger."""

    FULL = "full"
    """It has the largest size, or the next request would have made it too large."""
    PREFERRED = "preferred"
    """It has a preferred size below the largest."""
    DELAY = "delay"
    """Its oldest request had waited for as long as one may."""
    UNLIKE = "unlike"
    """The next request would have fitted but for its shapes or its inputs."""
    CUSTOM = "custom"
    """The model's batch strategy kept the next request out, or failed."""
    INSTANCE_FREE = "instance_free"
    """It was all there was, and an instance was free."""


class Batch:
    """Requests that run together; `size` is the sum of their batch sizes. Not empty, never changed once it is handed over.

    `is_positional`: where a request stands means something to the model, so that none may be left out, also when it has ended.
    `is_counted`: statistics tell of it.
    """

    __slots__ = ("is_counted", "is_positional", "requests", "size")

    def __init__(
        self, requests: list[InferRequest], size: int, *, is_positional: bool = False, is_counted: bool = True
    ) -> None:
        self.is_counted = is_counted
        self.requests = requests
        self.size = size
        self.is_positional = is_positional


class Instance(Protocol):
    """One loaded copy of a model, as a scheduler and its model see it. Loop thread only."""

    on_open_zero: Callable[[], None]
    """Set by the model: called each time `open_count` falls to 0."""

    @property
    def name(self) -> str:
        """The instance's name, unique in its model: `resnet_0`."""

    @property
    def run_length(self) -> int:
        """How many batches it would take at once: more than 1 when they are so short that handing over each costs more."""

    @property
    def open_count(self) -> int:
        """How many requests it has not ended although their batch is done: decoupled answers that are still to come."""

    async def check_ready(self) -> bool:
        """Return whether the copy says that it can answer; one without a say of its own can."""

    def submit_run(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        """Run `batches` one after the other, as `submit` would each; `on_done` is called once, after the last."""

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        """Run `batch` and answer its requests; never blocks, never raises.

        From here on the instance owns the requests: it ends each of them exactly once. `on_done` is called on the loop thread
        when the instance is free again. It may be called before `submit` returns, when the batch ran in place.
        """


class Scheduler(Protocol):
    """Decides when which requests of one model version run together. Loop thread only."""

    def enqueue(self, request: InferRequest) -> None:
        """Take a request, which the scheduler owns from here on.

        Raises InferenceServerError when it refuses it (queue full: UNAVAILABLE; stopping: UNAVAILABLE); the caller then still
        owns the request and ends it.
        """

    def pending_count(self) -> int:
        """Return how many requests are queued and not yet running."""

    def running_count(self) -> int:
        """Return how many requests were handed to instances and have not ended."""

    @property
    def close_counts(self) -> Mapping[CloseReason, int]:
        """How many batches were sent for which reason; empty for a scheduler that joins no requests."""

    def add(self, instance: Instance) -> None:
        """Let `instance` take batches from now on, at once when it is free. It may be new or removed before."""

    def remove(self, instance: Instance, on_free: Callable[[], None] | None = None) -> None:
        """Give `instance` no more batches until it is added again. One that runs still calls its `on_done`, without which
        its requests count as running; `on_free` is called once it has, at once when it doesn't run, and not at all when it is
        added again before.
        """

    def fail_queued(self, error: InferenceServerError) -> None:
        """End every queued request with `error`; what runs goes on."""

    def stop(self) -> None:
        """Refuse new requests from now on; what is queued still runs."""

    def on_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when nothing is queued and nothing runs: at once when that is so already."""
