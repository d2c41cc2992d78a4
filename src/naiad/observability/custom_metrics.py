"""`CustomMetrics`: the metrics that models make themselves, shown on `/metrics` under the models' own names.

Owns their values, who holds them, and the rules that keep the page well-formed. Messages are those of `worker.api.metrics`; the
same family with the same labels is one metric, whoever changes it. Loop thread only.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, not_found
from naiad.observability.prometheus_text import Family, Kind, Sample, number_text

MAX_FAMILIES = 1_000
MAX_METRICS = 10_000
MAX_BUCKETS = 200

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("nv_", "naiad_")
_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

Labels = tuple[tuple[str, str], ...]


class _Metric:
    """One metric. `value` is a counter's or gauge's, or the sum of what a histogram has seen; `counts` are its buckets', each
    without those below, the last one for everything above the bounds.
    """

    __slots__ = ("bounds", "counts", "holders", "labels", "value")

    def __init__(self, labels: Labels, bounds: Sequence[float]) -> None:
        self.labels = dict(labels)
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.value = 0.0
        self.holders: Counter[object] = Counter()

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.value += value

    def samples(self, kind: Kind) -> Iterator[Sample]:
        if kind is not Kind.HISTOGRAM:
            yield Sample(self.value, self.labels)
            return
        total = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts):
            total += count
            yield Sample(total, {**self.labels, "le": number_text(bound)}, "_bucket")
        yield Sample(self.value, self.labels, "_sum")
        yield Sample(total, self.labels, "_count")


class _Family:
    __slots__ = ("description", "holders", "kind", "metrics", "name")

    def __init__(self, name: str, kind: Kind, description: str) -> None:
        self.name = name
        self.kind = kind
        self.description = description
        self.holders: set[object] = set()
        self.metrics: dict[Labels, _Metric] = {}

    def to_page(self) -> Family:
        """Return what a scrape shows; values are read as it is written."""
        metrics = list(self.metrics.values())
        samples = (sample for metric in metrics for sample in metric.samples(self.kind))
        return Family(self.name, self.kind, self.description or self.name, samples)


class CustomMetrics:
    """See the module. An `owner` is whatever holds metrics and goes at once: a worker."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._metric_count = 0
        self._operations: dict[str, Callable[[object, Mapping[str, Any]], None]] = {
            "family": self._add_family,
            "metric": self._add_metric,
            "increment": self._increment,
            "set": self._set,
            "observe": self._observe,
            "delete": self._delete,
        }

    def apply(self, owner: object, message: Mapping[str, Any]) -> None:
        """Do what a message says, on behalf of `owner`. Raises InferenceServerError saying what is wrong with it."""
        operation = message.get("operation")
        apply = self._operations.get(operation) if isinstance(operation, str) else None
        if apply is None:
            raise invalid_argument(f"there is no operation {operation!r} of metrics")
        try:
            apply(owner, message)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise invalid_argument(f"a metric's message can't be read: {type(error).__name__}: {error}") from error

    def value(self, family: str, labels: Mapping[str, str]) -> float:
        """Return a counter's or gauge's value.

        Raises NOT_FOUND for a metric that isn't there, INVALID_ARGUMENT for a histogram.
        """
        known = self._families.get(family)
        metric = known.metrics.get(_key(labels)) if known is not None else None
        if known is None or metric is None:
            raise not_found(f"there is no metric '{family}' with labels {dict(labels)}")
        if known.kind is Kind.HISTOGRAM:
            raise _unsupported("value", known)
        return metric.value

    def drop_owner(self, owner: object) -> None:
        """Take back everything that `owner` holds: what nobody else holds leaves the page."""
        for family in list(self._families.values()):
            family.holders.discard(owner)
            for key, metric in list(family.metrics.items()):
                del metric.holders[owner]
                self._drop_if_unheld(family, key, metric)
            if not family.holders:
                del self._families[family.name]

    def families(self) -> Iterator[Family]:
        """Yield the families that have metrics, for one scrape."""
        for family in list(self._families.values()):
            if family.metrics:
                yield family.to_page()

    def _add_family(self, owner: object, message: Mapping[str, Any]) -> None:
        name, kind = _text(message, "family"), Kind(message["kind"])
        description = _text(message, "description")
        family = self._families.get(name)
        if family is None:
            self._check_name(name, kind)
            if len(self._families) >= MAX_FAMILIES:
                raise invalid_argument(f"metric '{name}' is one too many: models may have {MAX_FAMILIES} families in all")
            family = self._families[name] = _Family(name, kind, description)
        elif family.kind is not kind:
            raise invalid_argument(f"metric '{name}' is a {family.kind.value} already, it can't be a {kind.value} too")
        family.holders.add(owner)

    def _check_name(self, name: str, kind: Kind) -> None:
        if not _NAME.fullmatch(name):
            raise invalid_argument(f"metric name is '{name}', must match {_NAME.pattern}")
        if name.startswith(_RESERVED):
            raise invalid_argument(
                f"metric name is '{name}', must not begin with {' or '.join(_RESERVED)}: those are the server's"
            )
        for suffix in _HISTOGRAM_SUFFIXES:
            taken = self._families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if taken is not None and taken.kind is Kind.HISTOGRAM:
                raise invalid_argument(f"metric name '{name}' is taken by the histogram '{taken.name}'")
            if kind is Kind.HISTOGRAM and name + suffix in self._families:
                raise invalid_argument(f"histogram '{name}' needs the name '{name}{suffix}', which is another metric's")

    def _add_metric(self, owner: object, message: Mapping[str, Any]) -> None:
        name = _text(message, "family")
        family = self._families.get(name)
        if family is None or owner not in family.holders:
            raise not_found(f"there is no metric family '{name}' of this model")
        key, bounds = _checked_labels(family, message["labels"]), _checked_bounds(family, message["buckets"])
        metric = family.metrics.get(key)
        if metric is None:
            if self._metric_count >= MAX_METRICS:
                raise invalid_argument(
                    f"metric '{name}' with labels {dict(key)} is one too many: models may have {MAX_METRICS} in all, so labels "
                    "must not hold what differs in each request"
                )
            self._metric_count += 1
            metric = family.metrics[key] = _Metric(key, bounds)
        elif metric.bounds != bounds:
            raise invalid_argument(f"histogram '{name}' with labels {dict(key)} has the buckets {list(metric.bounds)} already")
        metric.holders[owner] += 1

    def _increment(self, owner: object, message: Mapping[str, Any]) -> None:
        family, metric = self._held(owner, message)
        value = _number(family, message["value"])
        if family.kind is Kind.HISTOGRAM:
            raise _unsupported("increment", family)
        if family.kind is Kind.COUNTER and value < 0:
            raise invalid_argument(f"counter '{family.name}' can't be incremented by {value}: counters never fall")
        metric.value += value

    def _set(self, owner: object, message: Mapping[str, Any]) -> None:
        family, metric = self._held(owner, message)
        if family.kind is not Kind.GAUGE:
            raise _unsupported("set", family)
        metric.value = _number(family, message["value"])

    def _observe(self, owner: object, message: Mapping[str, Any]) -> None:
        family, metric = self._held(owner, message)
        if family.kind is not Kind.HISTOGRAM:
            raise _unsupported("observe", family)
        metric.observe(_number(family, message["value"]))

    def _delete(self, owner: object, message: Mapping[str, Any]) -> None:
        family, metric = self._held(owner, message)
        metric.holders[owner] -= 1
        if not metric.holders[owner]:
            del metric.holders[owner]
        self._drop_if_unheld(family, _key(message["labels"]), metric)

    def _held(self, owner: object, message: Mapping[str, Any]) -> tuple[_Family, _Metric]:
        name = _text(message, "family")
        family = self._families.get(name)
        metric = family.metrics.get(_key(message["labels"])) if family is not None else None
        if family is None or metric is None or owner not in metric.holders:
            raise not_found(f"there is no metric '{name}' with labels {message['labels']} of this model")
        return family, metric

    def _drop_if_unheld(self, family: _Family, key: Labels, metric: _Metric) -> None:
        if not metric.holders:
            del family.metrics[key]
            self._metric_count -= 1


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _checked_labels(family: _Family, labels: Mapping[str, str]) -> Labels:
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name) or name == "le" or name.startswith("__"):
            raise invalid_argument(
                f"label name of metric '{family.name}' is '{name}': it isn't one, or has a meaning of its own"
            )
        if not isinstance(value, str):
            raise invalid_argument(f"label '{name}' of metric '{family.name}' is {value!r}, must be a string")
    return _key(labels)


def _checked_bounds(family: _Family, bounds: Iterable[float]) -> tuple[float, ...]:
    checked = tuple([_number(family, bound) for bound in bounds])
    if (family.kind is Kind.HISTOGRAM) is not bool(checked):
        raise invalid_argument(f"buckets are for histograms, which need some: metric '{family.name}' is a {family.kind.value}")
    if len(checked) > MAX_BUCKETS or any(low >= high for low, high in pairwise(checked)):
        raise invalid_argument(f"the buckets of histogram '{family.name}' must rise, and be {MAX_BUCKETS} at most")
    return checked


def _number(family: _Family, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise invalid_argument(f"a value for metric '{family.name}' is {value!r}, must be a finite number")
    return float(value)


def _text(message: Mapping[str, Any], member: str) -> str:
    text = message[member]
    if not isinstance(text, str):
        raise invalid_argument(f"'{member}' of a metric is {text!r}, must be a string")
    return text


def _unsupported(operation: str, family: _Family) -> InferenceServerError:
    return invalid_argument(f"{operation} isn't supported by metric '{family.name}', a {family.kind.value}")
