"""`InferRequest`: a checked request on its way through a scheduler to an instance.

Owns the request's state (queued, running, ended) and its cancellation. Lives on the loop thread; an executor's thread may read
`inputs` and `outputs` while the request runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from naiad.errors import cancelled
from naiad.request.call import Parameter
from naiad.request.responder import Responder


@dataclass(frozen=True, slots=True)
class Sequence:
    """The sequence a request belongs to. `id` is an integer other than 0 or a text other than ""."""

    id: int | str
    is_start: bool
    is_end: bool


class InferRequest:
    """One checked inference.

    `inputs` maps input names to arrays in the client's shape (with the batch dimension when the model batches), each in the
    numpy dtype of the model's datatype. `outputs` are the names of the wanted outputs, in the order in which the response
    lists them. `batch_size` is the number of items, 1 for models that don't batch (a batch of 0 counts 1 too).
    `received_ns` and `enqueued_ns` are monotonic times, and so is `deadline_ns`, until when the caller waits for the answer,
    None when it didn't say. `is_uncached` and `client` are the call's. `timeout_us` is the client's, 0 for none.
    `is_padding`: no client sent it, it only fills a position of a batch. `is_rescheduled`: the instance that had it is done
    with its batch and not with it, it is to run again. `may_omit_outputs`: a wanted output that the model doesn't return is
    no error.
    """

    __slots__ = (
        "batch_size",
        "client",
        "deadline_ns",
        "enqueued_ns",
        "id",
        "inputs",
        "is_cancelled",
        "is_padding",
        "is_rescheduled",
        "is_uncached",
        "may_omit_outputs",
        "on_cancel",
        "outputs",
        "parameters",
        "priority",
        "received_ns",
        "responder",
        "sequence",
        "timeout_us",
    )

    def __init__(
        self,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        outputs: tuple[str, ...],
        batch_size: int,
        responder: Responder,
        received_ns: int,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.batch_size = batch_size
        self.responder = responder
        self.received_ns = received_ns
        self.enqueued_ns = received_ns
        self.id = ""
        self.parameters: Mapping[str, Parameter] = {}
        self.priority = 0
        self.timeout_us = 0
        self.client = ""
        self.deadline_ns: int | None = None
        self.sequence: Sequence | None = None
        self.is_cancelled = False
        self.may_omit_outputs = False
        self.is_padding = False
        self.is_uncached = False
        self.is_rescheduled = False
        self.on_cancel: Callable[[InferRequest], None] | None = None

    def cancel(self) -> None:
        """Give the request up: it ends with CANCELLED at once, whatever it is doing.

        `on_cancel` belongs to whoever holds the request (a scheduler takes it out of its queue there); a running one only sees
        `is_cancelled`. Does nothing when the request has ended.
        """
        if self.is_cancelled or self.responder.has_ended:
            return
        self.is_cancelled = True
        if self.on_cancel is not None:
            self.on_cancel(self)
        self.responder.fail(cancelled())
