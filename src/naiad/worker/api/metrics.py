"""Custom metrics: families and their members, which appear on the server's metrics page under their own names.

Owns what a model may do to them, and the messages that say it. Numbers are kept by the server. A message names the family and
the labels, no ids: members of the same family with the same labels, of all instances of all models, are one.

| operation | further members |
|---|---|
| family | description, kind: "counter", "gauge" or "histogram" |
| metric | labels, buckets: upper bounds, rising, of a histogram, else [] |
| increment | labels, value: may be negative for a gauge |
| set | labels, value: a gauge's |
| observe | labels, value: a histogram's |
| delete | labels: one `metric` of this worker is taken back; the last one takes the member off the page |

Each has "operation" and "family", its name. A family comes before its members, a member before its changes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar

from naiad.worker.api import host
from naiad.worker.api.errors import TritonModelException, check_type

_FAMILY_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class MetricKind(IntEnum):
    """What a family measures."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class MetricFamily:
    """Metrics of one name. The same name, description and kind again is the same family; another kind is an error."""

    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        """Raises TritonModelException for a name that isn't one, or no kind."""
        if not isinstance(name, str) or not _FAMILY_NAME.fullmatch(name):
            raise TritonModelException(f"{name!r} can't be a metric's name: letters, digits, _ and : with no digit first can")
        check_type(f"the description of metric '{name}'", description, str)
        if not isinstance(kind, MetricKind):
            raise TritonModelException(
                f"metric '{name}' can't be of kind {kind!r}: MetricFamily.COUNTER, GAUGE and HISTOGRAM are there"
            )
        self.name = name
        self.kind = kind
        self._tell("family", description=description, kind=kind.name.lower())

    def Metric(  # noqa: N802 — Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """Return the member with `labels`, at 0 when it is new. `buckets` are the rising upper bounds of a histogram's.

        Raises TritonModelException for labels or buckets that can't be.
        """
        return Metric(self, _checked_labels(self.name, labels or {}), _checked_buckets(self, buckets))

    def _tell(self, operation: str, **more: Any) -> None:
        host.current().change_metric({"operation": operation, "family": self.name, **more})


class Metric:
    """One member of a family, made by `MetricFamily.Metric`. When the model lets it go, it leaves the metrics page."""

    __slots__ = ("__weakref__", "_family", "_is_told", "_labels")

    def __init__(self, family: MetricFamily, labels: dict[str, str], buckets: list[float]) -> None:
        self._family = family
        self._labels = labels
        self._is_told = False
        family._tell("metric", labels=labels, buckets=buckets)
        self._is_told = True

    def increment(self, value: float) -> None:
        """Add `value`. Raises TritonModelException for a histogram, and for a negative value to a counter."""
        self._change("increment", (MetricKind.COUNTER, MetricKind.GAUGE), value)

    def set(self, value: float) -> None:
        """Set a gauge to `value`. Raises TritonModelException for other kinds."""
        self._change("set", (MetricKind.GAUGE,), value)

    def observe(self, value: float) -> None:
        """Count `value` in a histogram. Raises TritonModelException for other kinds."""
        self._change("observe", (MetricKind.HISTOGRAM,), value)

    def value(self) -> float:
        """Ask the server for the value. Raises TritonModelException for a histogram, which has no single one."""
        family = self._family
        if family.kind is MetricKind.HISTOGRAM:
            raise TritonModelException(f"value isn't supported by metric '{family.name}', a histogram")
        return float(host.current().query("metric_value", {"family": family.name, "labels": self._labels}))

    def _change(self, operation: str, kinds: tuple[MetricKind, ...], value: float) -> None:
        family = self._family
        if family.kind not in kinds:
            raise TritonModelException(f"{operation} isn't supported by metric '{family.name}', a {family.kind.name.lower()}")
        number = _number(f"the value for metric '{family.name}'", value)
        if number < 0 and family.kind is MetricKind.COUNTER:
            raise TritonModelException(f"counter '{family.name}' can't be incremented by {number}: counters never fall")
        family._tell(operation, labels=self._labels, value=number)

    def __del__(self) -> None:
        if self._is_told:
            self._family._tell("delete", labels=self._labels)


def _number(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TritonModelException(f"{what} must be a number, not {value!r}") from None
    if not math.isfinite(number):
        raise TritonModelException(f"{what} must be a finite number, not {number}")
    return number


def _checked_labels(family: str, labels: Mapping[str, str]) -> dict[str, str]:
    check_type(f"labels of metric '{family}'", labels, Mapping)
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name) or name == "le":
            raise TritonModelException(f"{name!r} can't be a label of metric '{family}'")
        check_type(f"label '{name}' of metric '{family}'", value, str)
    return dict(labels)


def _checked_buckets(family: MetricFamily, buckets: Sequence[float] | None) -> list[float]:
    bounds = [_number(f"a bucket of metric '{family.name}'", bound) for bound in buckets or ()]
    if (family.kind is MetricKind.HISTOGRAM) != bool(bounds):
        kind = family.kind.name.lower()
        raise TritonModelException(f"buckets are for histograms, which need some: metric '{family.name}' is a {kind}")
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        raise TritonModelException(f"the buckets of metric '{family.name}' must rise: {bounds}")
    return bounds
