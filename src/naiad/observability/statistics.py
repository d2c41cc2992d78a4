"""What one loaded model version has done: the counters behind `/stats` and `/metrics`.

Owns the counters and their JSON form. Doesn't own Prometheus names (`model_metrics`) nor when something counts: the responder
and the executor say that. A reloaded model starts with new counters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from naiad.errors import FailureReason, InferenceServerError

MAX_RESPONSE_INDEX = 1000
"""Responses of one request from this index on have no statistics of their own: a stream without end must not take memory."""

_now_ns = time.time_ns


class ExecutionTotals:
    """How many times something was executed and how long its three phases took, in nanoseconds."""

    __slots__ = ("compute_infer_ns", "compute_input_ns", "compute_output_ns", "count")

    def __init__(self) -> None:
        self.count = 0
        self.compute_input_ns = 0
        self.compute_infer_ns = 0
        self.compute_output_ns = 0

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the three phases by name, each with the same count."""
        return {
            "compute_input": _duration(self.count, self.compute_input_ns),
            "compute_infer": _duration(self.count, self.compute_infer_ns),
            "compute_output": _duration(self.count, self.compute_output_ns),
        }


class ResponseTotals:
    """What became of the responses with one index, counts and nanoseconds: see `ModelStatistics.record_response`."""

    __slots__ = (
        "cancel_count",
        "cancel_ns",
        "compute_infer_ns",
        "compute_output_ns",
        "empty_count",
        "empty_ns",
        "fail_count",
        "fail_ns",
        "success_count",
        "success_ns",
    )

    def __init__(self) -> None:
        self.compute_infer_ns = self.compute_output_ns = 0
        self.success_count = self.success_ns = 0
        self.fail_count = self.fail_ns = 0
        self.empty_count = self.empty_ns = 0
        self.cancel_count = self.cancel_ns = 0

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the totals by name, in the order of the protocol; computing counts for responses with content or an error."""
        computed = self.success_count + self.fail_count
        return {
            "compute_infer": _duration(computed, self.compute_infer_ns),
            "compute_output": _duration(computed, self.compute_output_ns),
            "success": _duration(self.success_count, self.success_ns),
            "fail": _duration(self.fail_count, self.fail_ns),
            "empty_response": _duration(self.empty_count, self.empty_ns),
            "cancel": _duration(self.cancel_count, self.cancel_ns),
        }


class ModelStatistics:
    """The counters of one model version (see `request.responder.Recorder`). Loop thread only.

    The fields are read by whoever shows them; only the `record_…` methods change them. `per_request` adds the whole duration
    of a batch for each of its requests that succeeded, `per_batch_size` adds it once for the batch. `inference_count` counts
    items: a batch of n is n inferences and one execution. `per_response` is by index, for decoupled models only.
    `strategy_faults` are those of the batch strategy, which counts them itself; empty for models without.
    """

    __slots__ = (
        "cache_hit_count",
        "cache_hit_ns",
        "cache_miss_count",
        "cache_miss_ns",
        "execution_count",
        "failure_counts",
        "failure_ns",
        "inference_count",
        "last_inference_ms",
        "per_batch_size",
        "per_request",
        "per_response",
        "queue_ns",
        "refused_counts",
        "strategy_faults",
        "success_count",
        "success_ns",
    )

    def __init__(self) -> None:
        self.success_count = 0
        self.success_ns = 0
        self.failure_counts = dict.fromkeys(FailureReason, 0)
        self.failure_ns = 0
        self.queue_ns = 0
        self.refused_counts = {"queue_full": 0, "too_late": 0, "other": 0}
        self.inference_count = 0
        self.execution_count = 0
        self.cache_hit_count = self.cache_hit_ns = 0
        self.cache_miss_count = self.cache_miss_ns = 0
        self.last_inference_ms = 0
        self.per_request = ExecutionTotals()
        self.per_batch_size: dict[int, ExecutionTotals] = {}
        self.per_response: dict[int, ResponseTotals] = {}
        self.strategy_faults: Mapping[str, int] = {}

    @property
    def failure_count(self) -> int:
        """How many accepted requests failed, whatever the reason."""
        return sum(self.failure_counts.values())

    def record_success(self, request_ns: int) -> None:
        """See `Recorder.record_success`."""
        self.success_count += 1
        self.success_ns += request_ns

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        """See `Recorder.record_failure`."""
        self.failure_counts[reason] += 1
        self.failure_ns += request_ns

    @property
    def refused_count(self) -> int:
        """How many requests were refused before they were accepted, whatever the reason."""
        return sum(self.refused_counts.values())

    def record_refusal(self, error: InferenceServerError) -> None:
        """Count a request that was refused with `error` before it was accepted: it is in no failure counter of the protocol."""
        self.refused_counts[error.refusal or "other"] += 1

    def record_execution(
        self,
        batch_size: int,
        succeeded: int,
        queue_ns: int,
        compute_input_ns: int,
        compute_infer_ns: int,
        compute_output_ns: int,
    ) -> None:
        """Count one batch that was executed, well or not; once per batch.

        `batch_size` is the number of items, `succeeded` the number of requests that got an answer of it, `queue_ns` the sum of
        those requests' time in the queue. The phases are the batch's: to gather inputs, to run the model, to split outputs.
        """
        self.inference_count += batch_size
        self.execution_count += 1
        self.last_inference_ms = _now_ns() // 1_000_000
        self.queue_ns += queue_ns
        requests = self.per_request
        requests.count += succeeded
        requests.compute_input_ns += compute_input_ns * succeeded
        requests.compute_infer_ns += compute_infer_ns * succeeded
        requests.compute_output_ns += compute_output_ns * succeeded
        batches = self.per_batch_size.get(batch_size)
        if batches is None:
            batches = self.per_batch_size[batch_size] = ExecutionTotals()
        batches.count += 1
        batches.compute_input_ns += compute_input_ns
        batches.compute_infer_ns += compute_infer_ns
        batches.compute_output_ns += compute_output_ns

    def record_padding(self, item_count: int) -> None:
        """Take back, of what was counted as inferences, `item_count` items of a batch that no client sent."""
        self.inference_count -= item_count

    def record_cache_hit(self, lookup_ns: int) -> None:
        """Count a request that was answered without an execution; `record_success` counts it too."""
        self.cache_hit_count += 1
        self.cache_hit_ns += lookup_ns
        self.last_inference_ms = _now_ns() // 1_000_000

    def record_cache_miss(self, lookup_ns: int) -> None:
        """Count a request that the response cache had no answer for."""
        self.cache_miss_count += 1
        self.cache_miss_ns += lookup_ns

    def record_cache_insert(self, insert_ns: int) -> None:
        """Add the time that keeping an answer took to that of its miss."""
        self.cache_miss_ns += insert_ns

    def record_response(self, index: int, has_succeeded: bool, compute_infer_ns: int, compute_output_ns: int) -> None:
        """Count one response of a decoupled model, the one at `index` (from 0) of its request.

        `compute_infer_ns` is the time that the model took for it, from the response before it or the start of the request;
        `compute_output_ns` the time to make it what the client gets.
        """
        totals = self._response(index)
        if totals is None:
            return
        totals.compute_infer_ns += compute_infer_ns
        totals.compute_output_ns += compute_output_ns
        if has_succeeded:
            totals.success_count += 1
            totals.success_ns += compute_infer_ns + compute_output_ns
        else:
            totals.fail_count += 1
            totals.fail_ns += compute_infer_ns + compute_output_ns

    def record_empty_response(self, index: int, compute_infer_ns: int = 0) -> None:
        """Count a final flag that came without a response, where the response at `index` would have been."""
        totals = self._response(index)
        if totals is not None:
            totals.empty_count += 1
            totals.empty_ns += compute_infer_ns

    def record_cancelled_response(self, index: int, compute_infer_ns: int = 0) -> None:
        """Count a response at `index` that nobody waited for any more: the request was cancelled before it came."""
        totals = self._response(index)
        if totals is not None:
            totals.cancel_count += 1
            totals.cancel_ns += compute_infer_ns

    def _response(self, index: int) -> ResponseTotals | None:
        totals = self.per_response.get(index)
        if totals is None and index < MAX_RESPONSE_INDEX:
            totals = self.per_response[index] = ResponseTotals()
        return totals

    def to_json(self, name: str, version: str) -> dict[str, Any]:
        """Return the entry of the statistics extension for this model, with its keys in the order of the protocol.

        Durations are in nanoseconds, `last_inference` in milliseconds since 1970, 0 before the first. No backend
        reports its memory, so that member is empty.
        """
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": self._inference_stats(),
            "response_stats": {str(index): totals.to_json() for index, totals in sorted(self.per_response.items())},
            "batch_stats": [{"batch_size": size, **totals.to_json()} for size, totals in sorted(self.per_batch_size.items())],
            "memory_usage": [],
        }

    def _inference_stats(self) -> dict[str, dict[str, int]]:
        return {
            "success": _duration(self.success_count, self.success_ns),
            "fail": _duration(self.failure_count, self.failure_ns),
            "queue": _duration(self.success_count, self.queue_ns),
            **self.per_request.to_json(),
            "cache_hit": _duration(self.cache_hit_count, self.cache_hit_ns),
            "cache_miss": _duration(self.cache_miss_count, self.cache_miss_ns),
        }


def _duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}
