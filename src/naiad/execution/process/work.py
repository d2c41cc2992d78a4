"""A batch on its way through a worker.

Owns what is known of it; where it is, waiting or running, is the instance's part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from naiad.errors import InferenceServerError
from naiad.memory.arena import Block
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Instance
from naiad.request.request import InferRequest
from naiad.worker.frames import NO_BLOCK

OnDone = Callable[[Instance], None]


@dataclass(slots=True)
class Work:
    """A batch in an instance. `on_done` is set on the last of its run. `first_id` is 0 until it is sent. `is_given_back`: the
    scheduler counts it no more. `is_retry`: its one request has ended a worker before. `is_positional`, `is_counted`: see
    `Batch`.
    """

    requests: list[InferRequest]
    on_done: OnDone | None
    is_given_back: bool = False
    is_retry: bool = False
    is_positional: bool = False
    is_counted: bool = True
    first_id: int = 0
    block: Block = NO_BLOCK
    started_ns: int = 0
    gather_ns: int = 0

    @property
    def ids(self) -> range:
        """The ids of its requests in the worker."""
        return range(self.first_id, self.first_id + len(self.requests))

    @property
    def unended_count(self) -> int:
        """How many of its requests have had no end yet."""
        return sum(not request.responder.has_ended for request in self.requests)

    def drop_ended(self) -> bool:
        """Leave out requests that have ended, unless they hold positions; return whether any is left that hasn't."""
        unended = [request for request in self.requests if not request.responder.has_ended]
        if len(unended) < len(self.requests) and not self.is_positional:
            self.requests = unended
        return bool(unended)

    def fail(self, error: InferenceServerError) -> None:
        """End every request with `error`."""
        for request in self.requests:
            request.responder.fail(error)

    def record(self, statistics: ModelStatistics, succeeded: int, infer_ns: int, output_ns: int) -> None:
        """Count it as executed; `succeeded` of its requests got an answer."""
        if not self.is_counted:
            return
        size = queue_ns = 0
        for request in self.requests:
            size += request.batch_size
            queue_ns += self.started_ns - request.enqueued_ns
        share = succeeded / len(self.requests)
        statistics.record_execution(size, succeeded, int(queue_ns * share), self.gather_ns, infer_ns, output_ns)
