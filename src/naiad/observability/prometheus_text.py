"""The Prometheus text format, version 0.0.4: families, label blocks, values.

Owns the writing and its escapes, and checks names. Doesn't know which families there are. Names are written as they are given:
the `_total` that other writers add to a counter would change the names that dashboards know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

CONTENT_TYPE = "text/plain; charset=utf-8"

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NOT_IN_LABEL_NAME = re.compile(r"[^a-zA-Z0-9_]")


class Kind(Enum):
    """What a family's values mean: a total that only grows, a level, or how often values were how large."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family. Raises ValueError for a label name that the format doesn't allow.

    `suffix` is what its line adds to the family's name: `_bucket`, `_sum` or `_count` of a histogram.
    """

    value: float
    labels: Mapping[str, str]
    suffix: str = ""

    def __post_init__(self) -> None:
        for name in self.labels:
            # The same as [a-zA-Z_][a-zA-Z0-9_]*, which takes longer for the thousands of samples of a scrape.
            if not (name.isascii() and name.isidentifier()):
                raise ValueError(f"label name is {name!r}, must be letters, digits and underscores, no digit first")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its values. Raises ValueError for a name that the format doesn't allow."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]

    def __post_init__(self) -> None:
        if not _METRIC_NAME.fullmatch(self.name):
            raise ValueError(f"metric name is {self.name!r}, must match {_METRIC_NAME.pattern}")


def header(name: str, kind: Kind, help_text: str) -> str:
    """Return the two lines that open a family."""
    return f"# HELP {name} {_escape(help_text)}\n# TYPE {name} {kind.value}\n"


def label_block(labels: Mapping[str, str]) -> str:
    """Return `{a="1",b="2"}` with the names in alphabetical order, "" when there are none."""
    if not labels:
        return ""
    pairs = [f'{name}="{_escape_quoted(value)}"' for name, value in sorted(labels.items())]
    return "{" + ",".join(pairs) + "}"


def label_name(text: str) -> str:
    """Return `text` with an underscore for each character that no label name may have, as Prometheus itself does it."""
    return _NOT_IN_LABEL_NAME.sub("_", text)


def sample_line(name: str, block: str, value: float) -> str:
    """Return one line of a family; `block` is what `label_block` made."""
    return f"{name}{block} {value if type(value) is int else _float_text(value)}\n"


def family_lines(family: Family) -> Iterator[str]:
    """Yield the lines of `family`, its header as one."""
    yield header(family.name, family.kind, family.help)
    for sample in family.samples:
        yield sample_line(family.name + sample.suffix, label_block(sample.labels), sample.value)


def number_text(value: float) -> str:
    """Return `value` as the format writes it, a whole number without a point."""
    return str(int(value)) if value.is_integer() else _float_text(value)


def encode(text: str) -> bytes:
    """Return `text` in UTF-8; a half surrogate, which a file name that isn't UTF-8 may bring, becomes a question mark."""
    return text.encode("utf-8", "replace")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_quoted(text: str) -> str:
    return _escape(text).replace('"', r"\"")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
