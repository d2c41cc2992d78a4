"""The metric families that every model version has, with Triton's names and labels.

Owns names, help texts, labels and where each value is read. Doesn't own the counters (`statistics`) nor the scrape (`metrics`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from naiad.errors import FailureReason
from naiad.observability.prometheus_text import Kind, label_block, label_name, sample_line
from naiad.observability.statistics import ModelStatistics

_log = logging.getLogger("naiad.metrics")


@dataclass(frozen=True, slots=True)
class ModelMetricsSource:
    """Where the metrics of one loaded model version come from.

    `tags` are the `metric_tags` of its configuration. `pending_count` returns how many requests are queued and not yet running;
    it is asked at each scrape, so that the gauge is the queue's own length and can't drift. `load_seconds` is how long loading
    took. `namespace` is a label of its own unless it is "".
    """

    name: str
    version: str
    tags: Mapping[str, str]
    statistics: ModelStatistics
    pending_count: Callable[[], int]
    load_seconds: float
    namespace: str = ""
    has_cache: bool = False
    """Whether the model's answers are kept: only then it has the cache's series."""


class ModelSeries:
    """A source with the label blocks of its series, which are made once."""

    __slots__ = ("block", "reason_blocks", "source")

    def __init__(self, source: ModelMetricsSource) -> None:
        labels = _labels(source)
        self.source = source
        self.block = label_block(labels)
        self.reason_blocks = [(reason, label_block({**labels, "reason": reason.value})) for reason in FailureReason]


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """One family: `lines(name, series)` returns the lines of one model."""

    name: str
    kind: Kind
    help: str
    lines: Callable[[str, ModelSeries], str]
    is_optional: bool = False
    """Whether it is written only when some model has it."""


def model_families(*, counter_latencies: bool) -> tuple[ModelFamily, ...]:
    """Return the families in the order in which they are written; the latency counters only when they are wanted."""
    return _core_families() + ((*_latency_families(), *_cache_families()) if counter_latencies else ())


def _core_families() -> tuple[ModelFamily, ...]:
    counter, gauge = Kind.COUNTER, Kind.GAUGE
    return (
        ModelFamily(
            "nv_inference_request_success",
            counter,
            "Requests that ended well; one with a batch counts 1",
            _one(lambda source: source.statistics.success_count),
        ),
        ModelFamily(
            "nv_inference_request_failure", counter, "Requests that were accepted and failed, by reason", _failure_lines
        ),
        ModelFamily(
            "nv_inference_count",
            counter,
            "Inferences that were run; a batch of n counts n",
            _one(lambda source: source.statistics.inference_count),
        ),
        ModelFamily(
            "nv_inference_exec_count",
            counter,
            "Executions of the model; a batch counts 1",
            _one(lambda source: source.statistics.execution_count),
        ),
        ModelFamily(
            "nv_inference_pending_request_count",
            gauge,
            "Requests that are queued and not yet running",
            _one(lambda source: source.pending_count()),
        ),
        ModelFamily(
            "nv_model_load_duration_secs", gauge, "Seconds that loading took", _one(lambda source: source.load_seconds)
        ),
    )


def _latency_families() -> tuple[ModelFamily, ...]:
    return (
        _latency("request", "from receipt to answer", lambda statistics: statistics.success_ns),
        _latency("queue", "in the queue", lambda statistics: statistics.queue_ns),
        _latency("compute_input", "while inputs were gathered", lambda statistics: statistics.per_request.compute_input_ns),
        _latency("compute_infer", "while the model ran", lambda statistics: statistics.per_request.compute_infer_ns),
        _latency("compute_output", "while outputs were split", lambda statistics: statistics.per_request.compute_output_ns),
    )


def _cache_families() -> tuple[ModelFamily, ...]:
    return (
        _cache("num_hits", "Requests that were answered without an execution", lambda statistics: statistics.cache_hit_count),
        _cache("num_misses", "Requests that the cache had no answer for", lambda statistics: statistics.cache_miss_count),
        _cache(
            "hit_duration",
            "Microseconds that looking up took with a hit, summed",
            lambda statistics: statistics.cache_hit_ns // 1000,
        ),
        _cache(
            "miss_duration",
            "Microseconds that looking up took without a hit, and keeping the answer, summed",
            lambda statistics: statistics.cache_miss_ns // 1000,
        ),
    )


def _cache(what: str, help_text: str, read: Callable[[ModelStatistics], int]) -> ModelFamily:
    def lines(name: str, series: ModelSeries) -> str:
        source = series.source
        return sample_line(name, series.block, read(source.statistics)) if source.has_cache else ""

    return ModelFamily(f"nv_cache_{what}_per_model", Kind.COUNTER, help_text, lines, is_optional=True)


def _latency(phase: str, what: str, read_ns: Callable[[ModelStatistics], int]) -> ModelFamily:
    return ModelFamily(
        f"nv_inference_{phase}_duration_us",
        Kind.COUNTER,
        f"Microseconds that successful requests spent {what}, summed",
        _one(lambda source: read_ns(source.statistics) // 1000),
    )


def _one(read: Callable[[ModelMetricsSource], float]) -> Callable[[str, ModelSeries], str]:
    """Return the `lines` of a family with one series a model."""
    return lambda name, series: sample_line(name, series.block, read(series.source))


def _failure_lines(name: str, series: ModelSeries) -> str:
    """Return a line for each reason: all exist from the start, so that rates have a zero to begin at."""
    counts = series.source.statistics.failure_counts
    return "".join(sample_line(name, block, counts[reason]) for reason, block in series.reason_blocks)


def _labels(source: ModelMetricsSource) -> dict[str, str]:
    """Return the labels of a model: each tag of its configuration is a label with an underscore before its key."""
    labels = {"model": source.name, "version": source.version}
    if source.namespace:
        labels["namespace"] = source.namespace
    for key, value in sorted(source.tags.items()):
        name = f"_{label_name(key)}"
        if name in labels:
            _log.warning("model '%s': metric tag '%s' is left out, another tag has the label '%s'", source.name, key, name)
        labels.setdefault(name, value)
    return labels
