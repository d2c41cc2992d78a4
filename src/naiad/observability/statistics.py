"""What one loaded model version has done: the counters behind `/stats` and `/metrics`.

Owns the counters and their JSON form. Doesn't own Prometheus names (`model_metrics`) nor when something counts: the responder
and the executor say that. A reloaded model starts with new counters.
"""

from __future__ import annotations

import time
from typing import Any

from naiad.errors import FailureReason

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


class ModelStatistics:
    """The counters of one model version (see `request.responder.Recorder`). Loop thread only.

    The fields are read by whoever shows them; only the `record_…` methods change them. `per_request` adds the whole duration
    of a batch for each of its requests that succeeded, `per_batch_size` adds it once for the batch. `inference_count` counts
    items: a batch of n is n inferences and one execution.
    """

    __slots__ = (
        "execution_count",
        "failure_counts",
        "failure_ns",
        "inference_count",
        "last_inference_ms",
        "per_batch_size",
        "per_request",
        "queue_ns",
        "refused_count",
        "success_count",
        "success_ns",
    )

    def __init__(self) -> None:
        self.success_count = 0
        self.success_ns = 0
        self.failure_counts = dict.fromkeys(FailureReason, 0)
        self.failure_ns = 0
        self.queue_ns = 0
        self.refused_count = 0
        self.inference_count = 0
        self.execution_count = 0
        self.last_inference_ms = 0
        self.per_request = ExecutionTotals()
        self.per_batch_size: dict[int, ExecutionTotals] = {}

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

    def record_refusal(self) -> None:
        """Count a request that was refused before it was accepted (queue full): it is in no failure counter of the protocol."""
        self.refused_count += 1

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

    def to_json(self, name: str, version: str) -> dict[str, Any]:
        """Return the entry of the statistics extension for this model, with its keys in the order of the protocol.

        Durations are in nanoseconds, `last_inference` in milliseconds since 1970, 0 before the first. There is no response
        cache, no decoupled response and no backend that reports its memory, so those members are zero or empty.
        """
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": self._inference_stats(),
            "response_stats": {},
            "batch_stats": [{"batch_size": size, **totals.to_json()} for size, totals in sorted(self.per_batch_size.items())],
            "memory_usage": [],
        }

    def _inference_stats(self) -> dict[str, dict[str, int]]:
        return {
            "success": _duration(self.success_count, self.success_ns),
            "fail": _duration(self.failure_count, self.failure_ns),
            "queue": _duration(self.success_count, self.queue_ns),
            **self.per_request.to_json(),
            "cache_hit": _duration(0, 0),
            "cache_miss": _duration(0, 0),
        }


def _duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}
