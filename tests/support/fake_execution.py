"""Stand-ins for both ends of a scheduler: requests whose answers are recorded, and instances that end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from naiad.errors import FailureReason, InferenceServerError, internal
from naiad.request.batch import Batch, Instance
from naiad.request.request import InferRequest
from naiad.request.responder import Responder
from naiad.request.response import InferResponse


class Probe:
    """A request, its sink and its recorder in one: it sees everything that happens to the request.

    `answers` are the responses and the error in the order of their arrival; `on_end` is called when the last one comes. While
    `is_slow`, the client doesn't keep up, and `writable_callbacks` holds who wants to know when it does.
    """

    def __init__(self, inputs: Mapping[str, np.ndarray[Any, Any]] | None = None, batch_size: int = 1) -> None:
        self.answers: list[InferResponse | InferenceServerError | None] = []
        self.end_count = 0
        self.failures: list[FailureReason] = []
        self.on_end: Callable[[], None] | None = None
        self.is_slow = False
        self.writable_callbacks: list[Callable[[], None]] = []
        self.request = InferRequest(inputs or {}, (), batch_size, Responder(self, self, 0), 0)

    @property
    def error(self) -> InferenceServerError | None:
        """The error that ended the request, None when it has none."""
        last = self.answers[-1] if self.answers else None
        return last if isinstance(last, InferenceServerError) else None

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        self.answers.append(response)
        if is_final:
            self._end()

    def fail(self, error: InferenceServerError) -> None:
        self.answers.append(error)
        self._end()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        if self.is_slow:
            self.writable_callbacks.append(callback)
        return not self.is_slow

    def record_success(self, request_ns: int) -> None:
        pass

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        self.failures.append(reason)

    def _end(self) -> None:
        self.end_count += 1
        if self.on_end is not None:
            self.on_end()


class FakeInstance:
    """Holds its batches until `finish` or `fail`. Refuses more meanwhile, as no scheduler may submit any.

    It takes up to `run_length` batches at once; `runs` are the numbers that it was given at once.
    """

    def __init__(self, name: str = "fake_0", run_length: int = 1) -> None:
        self.name = name
        self.run_length = run_length
        self.runs: list[int] = []
        self.batches: list[Batch] = []
        self._run_start = 0
        self._on_done: Callable[[Instance], None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._on_done is not None

    @property
    def sizes(self) -> list[int]:
        """The sizes of all batches so far."""
        return [batch.size for batch in self.batches]

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        self._take([batch], on_done)

    def submit_run(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        self._take(batches, on_done)

    def _take(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        assert self._on_done is None, "a busy instance got a batch"
        assert 1 <= len(batches) <= self.run_length
        assert all(batch.size == sum(request.batch_size for request in batch.requests) for batch in batches)
        self._run_start = len(self.batches)
        self.runs.append(len(batches))
        self.batches += batches
        self._on_done = on_done

    def finish(self) -> None:
        """End the batch well."""
        for batch in self.batches[self._run_start :]:
            for request in batch.requests:
                request.responder.send(None)
        self._free()

    def fail(self) -> None:
        """End the batch with an error."""
        for batch in self.batches[self._run_start :]:
            for request in batch.requests:
                request.responder.fail(internal("the model failed"))
        self._free()

    def _free(self) -> None:
        on_done, self._on_done = self._on_done, None
        assert on_done is not None
        on_done(self)


class InPlaceInstance(FakeInstance):
    """Ends each batch before `submit` returns."""

    def _take(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        super()._take(batches, on_done)
        self.finish()
