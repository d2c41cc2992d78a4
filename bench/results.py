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

    `naiad_rounds` and `triton_rounds` hold every round's requests/s, `tensor_bytes` the size of the tensor
    that travels each way.
    """

    scenario: str
    variant: str
    naiad: Sample | None
    triton: Sample | None
    naiad_rounds: tuple[float, ...] = ()
    triton_rounds: tuple[float, ...] = ()
    tensor_bytes: int = 0


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
class IdleSample:
    """What open connections without a call add to the memory of a server and its children."""

    pss_before_bytes: float
    pss_growth_bytes: float


@dataclass(frozen=True, slots=True)
class Idle:
    """One server with `connections` idle connections of gRPC."""

    server: str
    connections: int
    sample: IdleSample


@dataclass(frozen=True, slots=True)
class StreamSample:
    """One call of ModelStreamInfer with many small responses; `cpu_us` is the server's CPU time for each."""

    responses_per_s: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Stream:
    """One server that answers one request with `responses`."""

    server: str
    responses: int
    sample: StreamSample


@dataclass(frozen=True, slots=True)
class ManyModelsSample:
    """One start with many models; the last two figures are what each model adds to a server that has one."""

    ready_s: float
    index_s: float
    stop_s: float
    pss_bytes_per_model: float
    descriptors_per_model: float


@dataclass(frozen=True, slots=True)
class ManyModels:
    """One server with `models` small models."""

    server: str
    models: int
    sample: ManyModelsSample


@dataclass(frozen=True, slots=True)
class OpenSample:
    """One trace of arrivals on one server. `goodput_per_s` counts the answers that came in time, latencies are of all that were
    answered, from the moment in the trace; `refusal_p50_us` is how soon a client hears of a refusal, 0 when none was refused;
    `lag_p99_us` is how late the generator itself sent.
    """

    offered_per_s: float
    goodput_per_s: float
    p50_us: float
    p99_us: float
    refused_share: float
    refusal_p50_us: float
    batch_size: float
    lag_p99_us: float


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """One server with one way of batching under one trace."""

    scenario: str
    server: str
    batching: str
    sample: OpenSample


@dataclass(frozen=True, slots=True)
class FairnessSample:
    """Two clients at once: what the one that floods gets through, and what the small one sees."""

    flood_per_s: float
    small_per_s: float
    small_p50_us: float
    small_p99_us: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """One server, with or without fairness between clients, as `fairness` says."""

    server: str
    fairness: str
    sample: FairnessSample


@dataclass(frozen=True, slots=True)
class Results:
    """Everything one run found; `left_out` says what couldn't be measured on this machine, and why."""

    comparisons: tuple[Comparison, ...] = ()
    engines: tuple[EngineShare, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    idles: tuple[Idle, ...] = ()
    streams: tuple[Stream, ...] = ()
    many_models: tuple[ManyModels, ...] = ()
    open_loops: tuple[OpenLoop, ...] = ()
    fairness: tuple[Fairness, ...] = ()
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


def median_idle(rounds: Sequence[IdleSample]) -> IdleSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return IdleSample(*_medians(rounds))


def median_stream(rounds: Sequence[StreamSample]) -> StreamSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return StreamSample(*_medians(rounds))


def median_many_models(rounds: Sequence[ManyModelsSample]) -> ManyModelsSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return ManyModelsSample(*_medians(rounds))


def median_open(rounds: Sequence[OpenSample]) -> OpenSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return OpenSample(*_medians(rounds))


def median_fairness(rounds: Sequence[FairnessSample]) -> FairnessSample:
    """Return the median of each figure by itself over the rounds, of which there must be at least one."""
    return FairnessSample(*_medians(rounds))


_AnySample = (
    Sample | EngineSample | FootprintSample | IdleSample | StreamSample | ManyModelsSample | OpenSample | FairnessSample
)


def _medians(rounds: Sequence[_AnySample]) -> list[float]:
    return [statistics.median(getattr(each, figure.name) for each in rounds) for figure in fields(rounds[0])]
