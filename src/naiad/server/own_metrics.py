"""The metric families that Triton doesn't have: bounds that were met, how requests were joined, and where batches ran.

Owns their names. Each is read from the structure it describes at the moment of a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from naiad.execution.pools import ExecutionPools
from naiad.observability.metrics import FamilySource
from naiad.observability.prometheus_text import Family, Kind, Sample
from naiad.repository.budget.holding import Holding
from naiad.repository.budget.keeper import MemoryBudget
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Model


def own_families(repository: RepositoryManager, pools: ExecutionPools) -> Iterator[FamilySource]:
    """Yield the sources of the families."""

    def of_models(name: str, kind: Kind, text: str, read: Callable[[Model], int]) -> FamilySource:
        def family() -> Family:
            samples = [Sample(read(model), _labels(model)) for model in repository.models()]
            return Family(name, kind, text, samples)

        return family

    yield of_models(
        "naiad_in_place_runs_total",
        Kind.COUNTER,
        "Batches that ran on the event loop",
        lambda model: model.placement.in_place_runs,
    )
    yield lambda: Family(
        "naiad_requests_refused_total",
        Kind.COUNTER,
        "Requests that were refused before they were queued; they are in no failure counter",
        [
            Sample(count, {**_labels(model), "reason": reason})
            for model in repository.models()
            for reason, count in model.statistics.refused_counts.items()
        ],
    )
    yield of_models(
        "naiad_running_requests",
        Kind.GAUGE,
        "Requests that run and have not ended",
        Model.running_count,
    )
    yield of_models(
        "naiad_poison_requests_total",
        Kind.COUNTER,
        "Requests that were given up since two worker processes died of them",
        lambda model: model.poison_count,
    )
    yield from _batch_families(repository)
    yield from _worker_families(repository)
    if repository.budget is not None:
        yield from _budget_families(repository.budget)
    yield lambda: Family(
        "naiad_thread_pool_queued_batches",
        Kind.GAUGE,
        "Batches that wait for a thread, see --thread-count",
        [Sample(pools.queued_count(), {})],
    )


def _batch_families(repository: RepositoryManager) -> Iterator[FamilySource]:
    yield lambda: Family(
        "naiad_batches_total",
        Kind.COUNTER,
        "Batches that the dynamic batcher sent, by why each was no larger",
        (
            Sample(count, {**_labels(model), "reason": reason.value})
            for model in list(repository.models())
            if model.plan.dynamic_batching is not None or model.plan.sequence_batching is not None
            for reason, count in model.scheduler.close_counts.items()
        ),
    )
    yield lambda: Family(
        "naiad_batch_strategy_faults_total",
        Kind.COUNTER,
        "Calls of batch strategies that failed, or held the event loop for over a millisecond",
        (
            Sample(count, {**_labels(model), "reason": reason})
            for model in list(repository.models())
            for reason, count in model.statistics.strategy_faults.items()
        ),
    )
    yield lambda: Family(
        "naiad_batch_size",
        Kind.HISTOGRAM,
        "Items that were executed together",
        (
            sample
            for model in list(repository.models())
            if model.plan.is_batching and model.plan.ensemble is None
            for sample in _batch_sizes(model)
        ),
    )


def _batch_sizes(model: Model) -> list[Sample]:
    """Return the histogram of a model's batch sizes, with the powers of two below the largest size as bounds, and itself."""
    labels, largest = _labels(model), model.plan.max_batch_size
    counts = {size: totals.count for size, totals in model.statistics.per_batch_size.items()}
    samples = []
    for bound in (*(1 << power for power in range((largest - 1).bit_length())), largest):
        within = sum([count for size, count in counts.items() if size <= bound])
        samples.append(Sample(within, {**labels, "le": str(bound)}, "_bucket"))
    total = sum(counts.values())
    samples.append(Sample(total, {**labels, "le": "+Inf"}, "_bucket"))
    samples.append(Sample(sum([size * count for size, count in counts.items()]), labels, "_sum"))
    samples.append(Sample(total, labels, "_count"))
    return samples


def _worker_families(repository: RepositoryManager) -> Iterator[FamilySource]:
    yield lambda: Family(
        "naiad_worker_restarts_total",
        Kind.COUNTER,
        "Worker processes of Python models that died or were replaced",
        [
            Sample(count, {**_labels(model), "reason": reason})
            for model in repository.models()
            for reason, count in model.restart_counts.items()
        ],
    )
    yield lambda: Family(
        "naiad_worker_memory_bytes",
        Kind.GAUGE,
        "Resident memory of worker processes, with what they share",
        [
            Sample(size_bytes, {**_labels(model), "instance": name})
            for model in repository.models()
            for name, size_bytes in model.worker_memory()
        ],
    )


def _budget_families(budget: MemoryBudget) -> Iterator[FamilySource]:
    def of_holdings(name: str, kind: Kind, text: str, read: Callable[[Holding], int]) -> FamilySource:
        def family() -> Family:
            samples = [Sample(read(holding), _labels(model)) for model, holding in budget.holdings()]
            return Family(name, kind, text, samples)

        return family

    yield lambda: Family(
        "naiad_model_memory_limit_bytes", Kind.GAUGE, "See --model-memory-limit", [Sample(budget.limit_bytes, {})]
    )
    yield of_holdings(
        "naiad_model_memory_bytes",
        Kind.GAUGE,
        "Memory that a model takes, 0 while it is unloaded to stay within --model-memory-limit",
        lambda holding: holding.taken_bytes,
    )
    yield of_holdings(
        "naiad_model_evictions_total",
        Kind.COUNTER,
        "How often an idle model was unloaded to stay within --model-memory-limit",
        lambda holding: holding.eviction_count,
    )
    yield of_holdings(
        "naiad_model_demand_loads_total",
        Kind.COUNTER,
        "How often a model was loaded since a request wanted it",
        lambda holding: holding.demand_load_count,
    )


def _labels(model: Model) -> dict[str, str]:
    namespace = {"namespace": model.namespace} if model.namespace else {}
    return {**namespace, "model": model.plan.name, "version": str(model.plan.version)}
