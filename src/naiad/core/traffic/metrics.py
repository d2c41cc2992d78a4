"""The metric families of traffic between versions.

Owns their names. A model is in them from its first request that followed traffic settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from naiad.core.traffic.control import TrafficControl
from naiad.observability.metrics import FamilySource
from naiad.observability.prometheus_text import Family, Kind, Sample


def traffic_families(traffic: TrafficControl) -> Iterator[FamilySource]:
    """Yield the sources of the families."""
    yield lambda: Family(
        "naiad_traffic_requests_total",
        Kind.COUNTER,
        "Requests that named no version of a model with traffic settings, by the version that they went to",
        [
            Sample(count, {"model": name, "version": str(version)})
            for name, state in traffic.states()
            for version, count in sorted(state.request_counts.items())
        ],
    )
    yield lambda: Family(
        "naiad_traffic_share",
        Kind.GAUGE,
        "Part of the requests without a version that a version gets now, 0 to 1",
        [
            Sample(share, {"model": name, "version": str(version)})
            for name, _ in traffic.states()
            for version, share in traffic.shares(name).items()
        ],
    )
    yield lambda: Family(
        "naiad_shadow_requests_total",
        Kind.COUNTER,
        "Copies of requests for versions on trial, by what became of them",
        [
            Sample(count, {"model": name, "version": str(version), "result": result.value})
            for name, state in traffic.states()
            for (version, result), count in state.shadow.counts.items()
        ],
    )
    yield lambda: Family(
        "naiad_shadow_requests_in_flight",
        Kind.GAUGE,
        "Copies of requests that have begun and not ended",
        [Sample(state.shadow.in_flight_count, {"model": name}) for name, state in traffic.states()],
    )
