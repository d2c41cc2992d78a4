"""What a loaded copy of a model runs before it serves: the samples of the config's `model_warmup`.

Owns how a sample becomes requests and who hears how they end. They pass by schedulers, caches and statistics. Doesn't own the
data (`config.compile.warmup`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from naiad.backends.base import BackendInstance, RequestsInstance
from naiad.config.plan import ModelPlan, WarmupSample
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.execution.per_request import RequestTensors
from naiad.execution.tensors import BatchTensors
from naiad.request.batch import Batch, Instance
from naiad.request.request import InferRequest
from naiad.request.responder import Responder
from naiad.request.response import InferResponse


def run_samples(copy: BackendInstance, plan: ModelPlan, tensors: BatchTensors) -> None:
    """Run all samples of `plan` on a copy that lives in this process; blocking.

    Raises InferenceServerError that names the sample when one fails.
    """
    outputs = tuple(output.name for output in plan.outputs)
    for sample in plan.warmup:
        for _ in range(sample.count):
            _run(copy, sample, _requests(plan, sample, _Unheard()), outputs, tensors)


def _run(
    copy: BackendInstance,
    sample: WarmupSample,
    requests: list[InferRequest],
    outputs: tuple[str, ...],
    tensors: BatchTensors,
) -> None:
    try:
        if isinstance(copy, RequestsInstance):
            each = RequestTensors(tensors)
            each.split(copy.execute_requests(each.gather(requests), outputs), requests)
        else:
            tensors.split(copy.execute(tensors.gather(requests), outputs), requests)
    except Exception as error:
        raise _failure(sample, error) from error
    finally:
        for request in requests:
            request.responder.refuse()


def begin_samples(instance: Instance, plan: ModelPlan) -> list[asyncio.Future[InferenceServerError | None]]:
    """Hand all samples of `plan` to an instance whose copy lives in a worker; loop thread only.

    What a scheduler hands it later runs later. Each future gets the error of one batch, None when it ran well.
    """
    futures = []
    for sample in plan.warmup:
        for _ in range(sample.count):
            listener = _Listener(sample)
            requests = _requests(plan, sample, listener)
            instance.submit(Batch(requests, len(requests), is_counted=False), _ignore)
            futures.append(listener.ended)
    return futures


class _Unheard:
    """See `ResponseSink`. Nobody waits for these requests."""

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return True


class _Listener(_Unheard):
    """See `ResponseSink`. Waits for the end of all requests of a batch: `ended` gets the first error, or None."""

    def __init__(self, sample: WarmupSample) -> None:
        self._sample = sample
        self._left = sample.batch_size
        self._error: InferenceServerError | None = None
        self.ended: asyncio.Future[InferenceServerError | None] = asyncio.get_running_loop().create_future()

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if is_final:
            self._end()

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._error = self._error or _failure(self._sample, error)
        self._end()

    def _end(self) -> None:
        self._left -= 1
        if not self._left and not self.ended.done():
            self.ended.set_result(self._error)


class _NoRecorder:
    """See `Recorder`. Nothing of a warm-up is counted."""

    def record_success(self, request_ns: int) -> None:
        """See `Recorder.record_success`."""

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        """See `Recorder.record_failure`."""


def _requests(plan: ModelPlan, sample: WarmupSample, sink: _Unheard) -> list[InferRequest]:
    """Return the requests of one batch: each has one item."""
    outputs = tuple(output.name for output in plan.outputs)
    return [InferRequest(sample.inputs, outputs, 1, Responder(sink, _NoRecorder(), 0), 0) for _ in range(sample.batch_size)]


def _failure(sample: WarmupSample, error: Exception) -> InferenceServerError:
    if isinstance(error, InferenceServerError):
        return InferenceServerError(error.code, f"failed to run warmup sample '{sample.name}': {error.message}")
    text = f"failed to run warmup sample '{sample.name}': {type(error).__name__}: {error}"
    return InferenceServerError(Code.INTERNAL, text)


def _ignore(instance: Instance) -> None:
    """No scheduler waits for the instance: it takes batches in their order."""
