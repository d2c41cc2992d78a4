"""Flag values that have parts of their own: restricted APIs, backend settings, metrics settings, web origins, host
policies, compute capabilities.

Owns their values, how one is read and how several are joined. Doesn't own what the server does with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from naiad.config.options.kinds import Bool
from naiad.devices.host_policy import HostPolicy, parse_setting
from naiad.devices.inventory import Capability

HTTP_APIS = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""The groups of endpoints that can be restricted."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_VERSION = re.compile(r"([0-9]{1,3})(?:\.([0-9]))?", re.ASCII)
_UNBUILT_METRICS = ("summary_latencies", "histogram_latencies")


@dataclass(frozen=True, slots=True)
class RestrictedGroup:
    """APIs that answer only requests whose header `header` has the value `value`."""

    apis: frozenset[str]
    header: str
    value: str


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Which families of metrics exist."""

    counter_latencies: bool = True


@dataclass(frozen=True, slots=True)
class RestrictedApis:
    """Kind `<apis>:<header>=<value>`, where apis is a comma-separated list."""

    metavar: str = "APIS:HEADER=VALUE"
    allowed: str = f"<api>,<api>…:<header>=<value> with a header's name and APIs of {', '.join(HTTP_APIS)}"

    def parse(self, text: str) -> RestrictedGroup:
        """See `Kind.parse`. The value is everything after the first "=" behind the first ":"."""
        names, _, pair = text.partition(":")
        header, equals, value = pair.partition("=")
        apis = [name.strip() for name in names.split(",")]
        if not (equals and _HEADER_NAME.fullmatch(header) and set(apis) <= set(HTTP_APIS)):
            raise ValueError
        if len(apis) != len(set(apis)):
            raise ValueError
        return RestrictedGroup(frozenset(apis), header, value)


@dataclass(frozen=True, slots=True)
class BackendSetting:
    """Kind `<backend>,<key>=<value>`, or `<key>=<value>` for every backend; read as (backend or "", key, value)."""

    metavar: str = "[BACKEND,]KEY=VALUE"
    allowed: str = "<backend>,<key>=<value>, or <key>=<value> for all backends (default-max-batch-size takes a whole number)"

    def parse(self, text: str) -> tuple[str, str, str]:
        """See `Kind.parse`. A comma behind the "=" belongs to the value."""
        left, equals, value = text.partition("=")
        backend, comma, key = left.rpartition(",")
        if not (equals and key) or (comma and not backend):
            raise ValueError
        if key == "default-max-batch-size" and not re.fullmatch(r"[0-9]{1,9}", value):
            raise ValueError
        return backend, key, value


@dataclass(frozen=True, slots=True)
class MetricsSetting:
    """Kind `<key>=<value>` of the metrics settings; read as (key, value)."""

    metavar: str = "KEY=VALUE"
    allowed: str = (
        "counter_latencies=true or counter_latencies=false "
        "(summary_latencies and histogram_latencies can only be false, and summary_quantiles doesn't exist: "
        "summaries and histograms aren't built yet)"
    )

    def parse(self, text: str) -> tuple[str, bool]:
        """See `Kind.parse`."""
        key, _, value = text.partition("=")
        is_on = Bool().parse(value)
        if key != "counter_latencies" and (key not in _UNBUILT_METRICS or is_on):
            raise ValueError
        return key, is_on


@dataclass(frozen=True, slots=True)
class Origin:
    """Kind of a web origin: scheme, host and maybe port, or `*` for all."""

    metavar: str = "ORIGIN"
    allowed: str = "an origin such as https://app.example or http://localhost:3000 (no path, lower case), or *"

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        if text != "*" and (text != text.lower() or not _ORIGIN.fullmatch(text)):
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class HostPolicySetting:
    """Kind `<policy>,<setting>=<value>`."""

    metavar: str = "POLICY,SETTING=VALUE"
    allowed: str = "<policy>,numa-node=<number> or <policy>,cpu-cores=<cores>, with cores such as 0-3,8"

    def parse(self, text: str) -> HostPolicy:
        """See `Kind.parse`."""
        return parse_setting(text)


@dataclass(frozen=True, slots=True)
class ComputeCapability:
    """Kind `<major>.<minor>`."""

    metavar: str = "VERSION"
    allowed: str = "a compute capability such as 7.5"

    def parse(self, text: str) -> Capability:
        """See `Kind.parse`."""
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError
        return int(found[1]), int(found[2] or 0)


def restricted_groups(groups: Sequence[RestrictedGroup]) -> tuple[RestrictedGroup, ...]:
    """Return the groups. Raises ValueError when an API is in two of them: it could only ever obey one."""
    seen: set[str] = set()
    for group in groups:
        if seen & group.apis:
            raise ValueError(f"API '{sorted(seen & group.apis)[0]}' is in more than one group; name each API once")
        seen |= group.apis
    return tuple(groups)


def backend_settings(settings: Sequence[tuple[str, str, str]]) -> Mapping[str, Mapping[str, str]]:
    """Return key → value by backend, "" for all backends; of two values for one key the later wins."""
    by_backend: dict[str, dict[str, str]] = {}
    for backend, key, value in settings:
        by_backend.setdefault(backend, {})[key] = value
    return MappingProxyType({name: MappingProxyType(values) for name, values in by_backend.items()})


def metrics_config(settings: Sequence[tuple[str, bool]]) -> MetricsConfig:
    """Return the settings joined; of two values for one key the later wins."""
    return MetricsConfig(counter_latencies=dict(settings).get("counter_latencies", True))
