"""`MetricsRegistry`: everything that a scrape of `/metrics` shows.

Owns which models and families there are, and the scrape, which holds the event loop for a slice at a time only. A registry
belongs to one server: two in a process don't meet. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice

from naiad.observability.cpu import CpuSampler
from naiad.observability.model_metrics import ModelMetricsSource, ModelSeries, model_families
from naiad.observability.prometheus_text import Family, Kind, Sample, encode, family_lines, header

__all__ = ["OWN_PREFIX", "FamiliesSource", "FamilySource", "MetricsRegistry", "ModelMetricsSource"]

OWN_PREFIX = "naiad_"
"""How the names of families that Triton doesn't have begin."""

FamilySource = Callable[[], Family]
FamiliesSource = Callable[[], Iterable[Family]]

# Some 14 series a model at well under 1 µs each: a slice is about 1 ms, and must never be 5.
_MODELS_PER_SLICE = 100
# Series of other families take some 4 µs each, with their labels.
_LINES_PER_SLICE = 100


class MetricsRegistry:
    """See the module. `interval_ms` is the shortest time between two readings of CPU and memory."""

    def __init__(self, *, counter_latencies: bool = True, cpu_metrics: bool = True, interval_ms: int = 2000) -> None:
        self._model_families = model_families(counter_latencies=counter_latencies)
        self._models: dict[tuple[str, str, str], list[ModelSeries]] = {}
        self._cpu = CpuSampler(interval_ms) if cpu_metrics and CpuSampler.is_available() else None
        self._own: dict[str, FamilySource] = {}
        self._others: list[FamiliesSource] = []

    def add_model(self, source: ModelMetricsSource) -> None:
        """Show a model version from now on, in place of one with the same name, version and namespace."""
        self._models.setdefault((source.name, source.version, source.namespace), []).append(ModelSeries(source))

    def remove_model(self, name: str, version: str, namespace: str = "") -> None:
        """Show a model version no longer. Raises KeyError when it isn't there.

        A reload adds the new one before it removes the old one, which then goes: the one that was added first.
        """
        series = self._models[name, version, namespace]
        del series[0]
        if not series:
            del self._models[name, version, namespace]

    def add_family(self, source: FamilySource) -> None:
        """Show a family of Naiad's own; `source` is called on the loop thread, now and at each scrape, and must not block.

        Raises ValueError for a name that doesn't begin with `naiad_` or that is there already.
        """
        name = source().name
        if not name.startswith(OWN_PREFIX):
            raise ValueError(f"metric name is {name!r}, must begin with {OWN_PREFIX!r}")
        if name in self._own:
            raise ValueError(f"there is a metric {name!r} already")
        self._own[name] = source

    def add_families(self, source: FamiliesSource) -> None:
        """Show families that come and go, under names of their own; `source` is called as that of `add_family` is. It sees to
        it that no name is another's.
        """
        self._others.append(source)

    async def render(self) -> bytes:
        """Return the text of a scrape.

        All values of one model are of the same moment. Between slices the loop goes on, so models may come and go meanwhile:
        shown are those that were there at the start.
        """
        chunks = [chunk async for chunk in self._model_chunks()]
        for family in self._server_families():
            # Making a family may have taken as long as a slice.
            await asyncio.sleep(0)
            chunks += [chunk async for chunk in _family_chunks(family)]
        return b"".join(chunks)

    async def _model_chunks(self) -> AsyncIterator[bytes]:
        """Yield the families of all models. The format wants each family in one piece, so slices are sorted by family."""
        models = [series[-1] for series in self._models.values()]
        texts: dict[str, list[bytes]] = {
            family.name: [encode(header(family.name, family.kind, family.help))] for family in self._model_families
        }
        for start in range(0, len(models), _MODELS_PER_SLICE):
            part = models[start : start + _MODELS_PER_SLICE]
            for family in self._model_families:
                name, lines = family.name, family.lines
                texts[name].append(encode("".join([lines(name, series) for series in part])))
            await asyncio.sleep(0)
        for family in self._model_families:
            chunks = texts[family.name]
            if family.is_optional and not any(chunks[1:]):
                continue
            for chunk in chunks:
                yield chunk

    def _server_families(self) -> Iterator[Family]:
        """Yield the families that aren't Triton's of a model; each is made only when the one before is written."""
        yield from _pinned_memory_families()
        if self._cpu is not None:
            yield from _cpu_families(self._cpu)
        for source in list(self._own.values()):
            yield source()
        for families in self._others:
            yield from families()


async def _family_chunks(family: Family) -> AsyncIterator[bytes]:
    lines = family_lines(family)
    while text := "".join(islice(lines, _LINES_PER_SLICE)):
        yield encode(text)
        await asyncio.sleep(0)


def _pinned_memory_families() -> list[Family]:
    """Return the families of pinned memory, of which Naiad has none; dashboards expect them on every build."""
    return [
        _level("nv_pinned_memory_pool_total_bytes", "Size of the pool of pinned memory", 0),
        _level("nv_pinned_memory_pool_used_bytes", "Used bytes of the pool of pinned memory", 0),
    ]


def _cpu_families(cpu: CpuSampler) -> list[Family]:
    reading = cpu.read()
    return [
        _level("nv_cpu_utilization", "Share of the machine's CPU time in use, 0.0 to 1.0", reading.utilization),
        _level("nv_cpu_memory_total_bytes", "Memory of the machine", reading.memory_total_bytes),
        _level("nv_cpu_memory_used_bytes", "Memory of the machine in use", reading.memory_used_bytes),
    ]


def _level(name: str, help_text: str, value: float) -> Family:
    return Family(name, Kind.GAUGE, help_text, [Sample(value, {})])
