"""What a run found, as plain values, and the median of rounds. Owns no measuring and no layout."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run on one server; `cpu_us` is the CPU time of the server and its children for each request, `batch_size` the
    number of requests that an execution had on average.
    """

    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    batch_size: float = 1.0


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One run of the bare engine loop; an item is what one request carries."""

    items_per_s: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class FootprintSample:
    """One start of a server with one small model: time to ready, and memory of the server with its children."""

    ready_s: float
    pss_bytes: float
    rss_bytes: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One scenario with Naiad in one variant. None, or a variant "", is what wasn't measured.

    `naiad_rounds` and `triton_rounds` hold every round's requests/s.
    """

    scenario: str
    variant: str
    naiad: Sample | None
    triton: Sample | None
    naiad_rounds: tuple[float, ...] = ()
    triton_rounds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineShare:
    """One real model: the bare engine, and Naiad with that engine on the same cores."""

    scenario: str
    batch: int
    concurrency: int
    engine: EngineSample
    naiad: Sample

    @property
    def share(self) -> float:
        """How much of the engine's speed reaches the client, 1.0 for all of it."""
        return self.naiad.requests_per_s / self.engine.items_per_s

    @property
    def added_cpu_us(self) -> float:
        """CPU time that serving adds to each request, beyond the engine's own."""
        return self.naiad.cpu_us - self.engine.cpu_us


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one server costs before any load."""

    server: str
    sample: FootprintSample


@dataclass(frozen=True, slots=True)
class Results:
    """Everything one run found; `left_out` says what couldn't be measured on this machine, and why."""

    comparisons: tuple[Comparison, ...] = ()
    engines: tuple[EngineShare, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    left_out: tuple[str, ...] = ()


def median_sample(rounds: Sequence[Sample]) -> Sample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return Sample(*_medians(rounds))


def median_engine(rounds: Sequence[EngineSample]) -> EngineSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return EngineSample(*_medians(rounds))


def median_footprint(rounds: Sequence[FootprintSample]) -> FootprintSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return FootprintSample(*_medians(rounds))


def _medians(rounds: Sequence[Sample | EngineSample | FootprintSample]) -> list[float]:
    return [statistics.median(getattr(each, figure.name) for each in rounds) for figure in fields(rounds[0])]
