"""The executor whose instances live in this process: a batch borrows a thread, or runs in place.

Owns one loaded copy of a model from the batch's hand-over to the end of each of its requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from naiad.backends.base import BackendInstance, RequestsInstance
from naiad.config.plan import ModelPlan
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.execution.per_request import RequestTensors
from naiad.execution.placement import Placement, TurnBudget
from naiad.execution.tensors import BatchTensors
from naiad.execution.threads import Completion, ThreadPool
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Batch, Instance
from naiad.request.request import InferRequest
from naiad.request.response import InferResponse, OutputTensor

_now_ns = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What all instances of one model version share."""

    plan: ModelPlan
    tensors: BatchTensors
    statistics: ModelStatistics
    placement: Placement
    pool: ThreadPool
    budget: TurnBudget


@dataclass(slots=True)
class _Outcome:
    """What came of running some requests together: their outputs, or the one error of all of them; durations in ns.

    `cpu_ns` is what the thread itself computed of `infer_ns`, 0 in place.
    """

    requests: list[InferRequest]
    answers: list[list[OutputTensor]]
    error: InferenceServerError | None
    started_ns: int
    gather_ns: int
    infer_ns: int
    split_ns: int
    cpu_ns: int


class ThreadInstance:
    """See `Instance`. Runs one batch at a time."""

    def __init__(self, name: str, backend: BackendInstance, context: ExecutionContext) -> None:
        self.name = name
        self._backend = backend
        self._per_request = backend if isinstance(backend, RequestsInstance) else None
        self._tensors = RequestTensors(context.tensors) if self._per_request is not None else context.tensors
        self._context = context
        self._plan = context.plan
        self._version = str(context.plan.version)
        sequences = context.plan.sequence_batching
        self._keeps_states = sequences is not None and not sequences.states
        self.on_open_zero: Callable[[], None] = lambda: None

    @property
    def run_length(self) -> int:
        """See `Instance.run_length`."""
        return self._context.placement.run_length

    @property
    def open_count(self) -> int:
        """See `Instance.open_count`: a batch here ends all of its requests."""
        return 0

    async def check_ready(self) -> bool:
        """See `Instance.check_ready`."""
        return True

    def submit_run(self, batches: list[Batch], on_done: Callable[[Instance], None]) -> None:
        """See `Instance.submit_run`."""
        placement = self._context.placement
        sized = [(batch, _input_bytes(batch)) for batch in batches]
        if not all(placement.is_in_place(size_bytes) for _, size_bytes in sized):
            self._context.pool.submit(lambda: self._run_on_thread(sized, on_done))
        elif self._context.budget.is_free:
            self._run_all_in_place(sized, on_done)
        else:
            self._context.budget.defer(partial(self._run_all_in_place, sized, on_done))

    def submit(self, batch: Batch, on_done: Callable[[Instance], None]) -> None:
        """See `Instance.submit`."""
        context = self._context
        size_bytes = _input_bytes(batch)
        if not context.placement.is_in_place(size_bytes):
            context.pool.submit(lambda: self._run_on_thread([(batch, size_bytes)], on_done))
        elif context.budget.is_free:
            self._run_once_in_place(batch, size_bytes)
            on_done(self)
        else:
            context.budget.defer(partial(self._run_all_in_place, [(batch, size_bytes)], on_done))

    def close(self) -> None:
        """Give the loaded model back; blocking, nothing runs any more."""
        self._backend.close()

    def _run_all_in_place(self, sized: list[tuple[Batch, int]], on_done: Callable[[Instance], None]) -> None:
        """Run batches in place while the turn's budget lasts; the rest waits for the next turn, after the sockets' turn."""
        context = self._context
        for index, (batch, size_bytes) in enumerate(sized):
            if not context.budget.is_left:
                context.budget.defer(partial(self._run_all_in_place, sized[index:], on_done))
                return
            self._run_once_in_place(batch, size_bytes)
        on_done(self)

    def _run_once_in_place(self, batch: Batch, size_bytes: int) -> None:
        began_ns = _now_ns()
        for outcome in self._run(batch, is_on_thread=False):
            self._context.placement.observe_in_place(size_bytes, outcome.infer_ns)
            self._end(outcome)
        self._context.budget.spend(_now_ns() - began_ns)

    def _run_on_thread(self, sized: list[tuple[Batch, int]], on_done: Callable[[Instance], None]) -> Completion:
        placement = self._context.placement
        # Clients may have gone while the batch waited for a thread, or in a run for the one before it.
        done = [
            (size_bytes, outcome)
            for batch, size_bytes in sized
            if not batch.requests[0].is_cancelled or not _is_given_up(batch)
            for outcome in self._run(batch, is_on_thread=True)
        ]

        def finish() -> None:
            for size_bytes, outcome in done:
                placement.observe_thread(size_bytes, outcome.cpu_ns, outcome.infer_ns)
                self._end(outcome)
            on_done(self)

        return finish

    def _run(self, batch: Batch, is_on_thread: bool) -> list[_Outcome]:
        """Run the batch; when it fails, run each of its requests alone, so that a bad one can't fail the others.

        Not where the model goes by a request's position, as it keeps the states of sequences itself: alone, each would be the
        first one's.
        """
        outcome = self._execute(batch.requests, is_on_thread)
        if outcome.error is None or len(batch.requests) == 1 or (batch.is_positional and self._keeps_states):
            return [outcome]
        return [
            self._execute([request], is_on_thread)
            for request in batch.requests
            if not (request.is_cancelled or request.is_padding)
        ]

    def _execute(self, requests: list[InferRequest], is_on_thread: bool) -> _Outcome:
        tensors = self._tensors
        started_ns = gathered_ns = inferred_ns = _now_ns()
        answers: list[list[OutputTensor]] = []
        error = None
        cpu_ns = 0
        try:
            inputs = tensors.gather(requests)
            gathered_ns = inferred_ns = _now_ns()
            began_cpu_ns = time.thread_time_ns() if is_on_thread else 0
            arrays = self._run_backend(inputs, _wanted(requests))
            cpu_ns = time.thread_time_ns() - began_cpu_ns if is_on_thread else 0
            inferred_ns = _now_ns()
            answers = tensors.split(arrays, requests)
        except Exception as exception:
            error = _as_error(exception, self._plan.name)
            inferred_ns = max(inferred_ns, _now_ns())
        ended_ns = _now_ns()
        return _Outcome(
            requests,
            answers,
            error,
            started_ns,
            gathered_ns - started_ns,
            inferred_ns - gathered_ns,
            ended_ns - inferred_ns,
            cpu_ns,
        )

    def _run_backend(self, inputs: Any, outputs: Sequence[str]) -> object:
        if self._per_request is not None:
            return self._per_request.execute_requests(inputs, outputs)
        return self._backend.execute(inputs, outputs)

    def _end(self, outcome: _Outcome) -> None:
        """Answer the requests of `outcome` and count them; the loop thread only."""
        succeeded = queue_ns = size = 0
        for index, request in enumerate(outcome.requests):
            size += request.batch_size
            if outcome.error is not None:
                request.responder.fail(outcome.error)
                continue
            response = InferResponse(self._plan.name, self._version, request.id, outcome.answers[index])
            waited_ns = outcome.started_ns - request.enqueued_ns
            response.timing = (waited_ns, outcome.gather_ns, outcome.infer_ns, outcome.split_ns)
            if request.responder.send(response):
                succeeded += 1
                queue_ns += waited_ns
        self._context.statistics.record_execution(
            size, succeeded, queue_ns, outcome.gather_ns, outcome.infer_ns, outcome.split_ns
        )


def _is_given_up(batch: Batch) -> bool:
    """Return whether nobody waits for anything of the batch."""
    return not batch.is_positional and all(request.is_cancelled for request in batch.requests)


def _input_bytes(batch: Batch) -> int:
    """Return the size of the batch's inputs: what a model's run time is learnt by."""
    size_bytes = 0
    for request in batch.requests:
        for array in request.inputs.values():
            size_bytes += array.nbytes
    return size_bytes


def _wanted(requests: list[InferRequest]) -> tuple[str, ...]:
    """Return the outputs that any of `requests` wants, each once."""
    first = requests[0].outputs
    if len(requests) == 1 or all(request.outputs == first for request in requests):
        return first
    return tuple(dict.fromkeys(name for request in requests for name in request.outputs))


def _as_error(exception: Exception, model_name: str) -> InferenceServerError:
    """Return `exception` as the error that its requests get: it counts as the backend's and names the model."""
    if isinstance(exception, InferenceServerError):
        code, text = exception.code, exception.message
    else:
        code, text = Code.INTERNAL, f"{type(exception).__name__}: {exception}"
    if f"'{model_name}'" not in text:
        text = f"model '{model_name}' failed: {text}"
    return InferenceServerError(code, text, FailureReason.BACKEND)
