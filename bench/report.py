"""Lays out what a run found: a page in Markdown and the same facts as JSON. Owns the layout and the names of the files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import Machine
from bench.results import Comparison, EngineShare, Fairness, Footprint, Idle, ManyModels, OpenLoop, Results, Sample, Stream

ABSENT = "n/a"
LARGE_TENSOR_BYTES = 100_000
OVERLOAD_PREFIX = "overload-"
METHOD = (
    (
        "Every figure is the median of the rounds; within a round each server and variant gets the same load in turn. "
        "Each run follows a checked answer and a second of warm-up; one failed request fails the whole run."
    ),
    (
        "Load comes from one other process on the same machine: wrk (one thread, one recorded request over and over), "
        "h2load for gRPC (the same, on up to 4 connections) or perf_analyzer. "
        "Requests/s and latencies are what it saw. Binary rows ask for binary outputs."
    ),
    (
        "Server CPU is user and system time of the server process and its children, divided by the requests that the server's "
        "own statistics counted."
    ),
    (
        "Both servers run with their defaults and the same config, max_batch_size 8 (16 for the model that sleeps 5 ms an "
        "execution), one instance, requests of batch 1. "
        "Triton's side is its Python backend with an identity model in Python, since the public wheel has no C++ identity: "
        "Naiad's rows in place and in a thread run Naiad's own identity, so they compare servers and not model code. "
        "Like with like is the row of the worker process; ensembles have a row with ONNX models as their steps as well."
    ),
    (
        "Sequences: a running sum over 1,000 sequences that are open at once, whose steps take turns; each ends after 20 "
        "steps and starts again. Some sums are asked for after each run. Triton's side is a Python model that keeps the sums, "
        "as is Naiad's worker process; with ONNX the server keeps them as implicit state. `oldest` has 1024 candidates and "
        "batches of 64, `direct` eight instances with 128 slots each."
    ),
    (
        "Requests that come when they come (adaptive-*, overload-*): a client of one thread sends at the moments of a trace, "
        "the same for all, however late the answers are; latencies count from those moments. The model sleeps 8 ms an "
        "execution and 1 ms a request, so that full batches of 8 make 500 requests/s. In time is within 50 ms for adaptive-*, "
        "within the queue's time-out (100 ms, REJECT) and 25 ms more for overload-*, whose best is the subject's best of the "
        "loads from 0.8 to 3 times 500 requests/s."
    ),
    (
        "Fairness: a client with 64 connections and one with 1, each with a request on its way all the time, on the model that "
        "sleeps; with fairness Naiad tells them apart by a header."
    ),
    (
        "The bare engine is ONNX Runtime in a loop in its own process, one thread, the full batch. Server and engine share "
        "one core, the load has the others; there are twice as many requests at once as a batch holds. Added CPU is the "
        "difference of two large figures: for models of many milliseconds it is lost in the noise, and may come out below zero."
    ),
    (
        "MB/s count the tensors of both directions. Idle connections have answered one call each; a stream's responses are "
        "counted by a client that reads HTTP/2 frames, the model is the same decoupled Python model on both servers."
    ),
    (
        "Memory is the server with its children, one identity model loaded and one request answered; PSS counts a shared page "
        "by its share. Time to ready runs from the start of the process to the first 200 of /v2/health/ready."
    ),
    (
        "Many models are ONNX models with one Add, without a config.pbtxt, in one repository; what each costs is the "
        "difference to the same server with one of them. The index is the median of five calls."
    ),
)


def write(folder: Path, machine: Machine, results: Results, settings: dict[str, Any]) -> Path:
    """Write `<date>-<commit>.md` and `.json` (`-dirty` added for changed files) and return the first."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{machine.date}-{machine.commit}{'-dirty' if machine.is_dirty else ''}.md"
    path.write_text(to_markdown(machine, results, settings))
    path.with_suffix(".json").write_text(to_json(machine, results, settings))
    return path


def to_json(machine: Machine, results: Results, settings: dict[str, Any]) -> str:
    """Return all facts as one JSON object; times in the units that the names say."""
    facts = {
        "machine": dataclasses.asdict(machine),
        "settings": settings,
        "method": METHOD,
        "results": dataclasses.asdict(results),
    }
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"


def to_markdown(machine: Machine, results: Results, settings: dict[str, Any]) -> str:
    """Return the page: where and what, the tables that have rows, what was left out, the method."""
    large = [row for row in results.comparisons if row.tensor_bytes >= LARGE_TENSOR_BYTES]
    sections: tuple[tuple[str, Sequence[Any], Callable[[Any], str]], ...] = (
        ("Naiad and Triton", results.comparisons, comparison_table),
        ("Large tensors both ways", large, throughput_table),
        ("Requests that come when they come", results.open_loops, open_loop_table),
        ("A small client beside one that floods", results.fairness, fairness_table),
        ("A stream of small responses", results.streams, stream_table),
        ("Idle gRPC connections", results.idles, idle_table),
        ("Naiad and the bare engine", results.engines, engine_table),
        ("Start and memory", results.footprints, footprint_table),
        ("Many models", results.many_models, many_models_table),
        ("Left out", results.left_out, _bullets),
        ("Method", METHOD, _bullets),
    )
    shown = [f"## {title}\n\n{lay_out(rows)}" for title, rows, lay_out in sections if rows]
    return "\n\n".join([_head(machine, settings), *shown]) + "\n"


def comparison_table(rows: Sequence[Comparison]) -> str:
    """Return one line for each scenario and variant; a ratio above 1 is good for requests/s, below 1 for p99."""
    titles = ["scenario", "Naiad runs the model", "Naiad req/s", "Triton req/s", "ratio req/s", "Naiad p50 ms", "Triton p50 ms"]
    titles += ["Naiad p99 ms", "Triton p99 ms", "ratio p99", "Naiad CPU µs/req", "Triton CPU µs/req"]
    titles += ["Naiad req/execution", "Triton req/execution"]
    return _table(titles, (_comparison_cells(row) for row in rows))


def _comparison_cells(row: Comparison) -> list[str]:
    ours, theirs = row.naiad, row.triton
    rates, halves, tails, costs, batches = (
        [getattr(sample, figure) if sample else None for sample in (ours, theirs)]
        for figure in ("requests_per_s", "p50_us", "p99_us", "cpu_us", "batch_size")
    )
    cells = [row.scenario, row.variant or ABSENT, *map(_number, rates), _ratio(*rates), *map(_milliseconds, halves)]
    return [*cells, *map(_milliseconds, tails), _ratio(*tails), *map(_number, costs), *map(_number, batches)]


def throughput_table(rows: Sequence[Comparison]) -> str:
    """Return one line for each scenario and variant: megabytes (10^6) of tensors a second, there and back."""
    titles = ["scenario", "Naiad runs the model", "tensor kB", "Naiad MB/s", "Triton MB/s", "ratio"]
    return _table(titles, (_throughput_cells(row) for row in rows))


def _throughput_cells(row: Comparison) -> list[str]:
    rates = [_megabytes_per_s(sample, row.tensor_bytes) for sample in (row.naiad, row.triton)]
    return [row.scenario, row.variant or ABSENT, _number(row.tensor_bytes / 1000), *map(_number, rates), _ratio(*rates)]


def _megabytes_per_s(sample: Sample | None, tensor_bytes: int) -> float | None:
    return None if sample is None else 2 * tensor_bytes * sample.requests_per_s / 1e6


def open_loop_table(rows: Sequence[OpenLoop]) -> str:
    """Return one line for each trace, server and batching; under overload with the share of the subject's best row."""
    titles = ["scenario", "server", "batching", "offered req/s", "in time req/s", "of its best", "p50 ms", "p99 ms", "refused"]
    titles += ["refusal p50 ms", "req/execution", "generator's p99 lag ms"]
    overloads = [row for row in rows if row.scenario.startswith(OVERLOAD_PREFIX)]
    return _table(titles, (_open_loop_cells(row, [each for each in overloads if _is_same_subject(each, row)]) for row in rows))


def _is_same_subject(row: OpenLoop, other: OpenLoop) -> bool:
    return (row.server, row.batching) == (other.server, other.batching)


def _open_loop_cells(row: OpenLoop, rivals: Sequence[OpenLoop]) -> list[str]:
    found = row.sample
    best_per_s = max((each.sample.goodput_per_s for each in rivals), default=0.0) if row in rivals else 0.0
    cells = [row.scenario, row.server, row.batching, _number(found.offered_per_s), _number(found.goodput_per_s)]
    cells += [f"{found.goodput_per_s / best_per_s:.0%}" if best_per_s else ABSENT]
    cells += [_milliseconds(found.p50_us), _milliseconds(found.p99_us), f"{found.refused_share:.0%}"]
    cells += [_milliseconds(found.refusal_p50_us) if found.refused_share else ABSENT]
    return [*cells, _number(found.batch_size), _milliseconds(found.lag_p99_us)]


def fairness_table(rows: Sequence[Fairness]) -> str:
    """Return one line for each server, with and without fairness."""
    titles = ["server", "fairness", "flood req/s", "small client req/s", "small p50 ms", "small p99 ms"]
    return _table(titles, (_fairness_cells(row) for row in rows))


def _fairness_cells(row: Fairness) -> list[str]:
    found = row.sample
    rates = [_number(found.flood_per_s), _number(found.small_per_s)]
    return [row.server, row.fairness, *rates, _milliseconds(found.small_p50_us), _milliseconds(found.small_p99_us)]


def stream_table(rows: Sequence[Stream]) -> str:
    """Return one line for each server."""
    titles = ["server", "responses of one call", "responses/s", "CPU µs/response"]
    cells = ([row.server, str(row.responses), _number(row.sample.responses_per_s), _number(row.sample.cpu_us)] for row in rows)
    return _table(titles, cells)


def idle_table(rows: Sequence[Idle]) -> str:
    """Return one line for each server."""
    titles = ["server", "connections", "PSS before MiB", "growth MiB", "growth KiB/connection"]
    return _table(titles, (_idle_cells(row) for row in rows))


def _idle_cells(row: Idle) -> list[str]:
    before, growth = row.sample.pss_before_bytes, row.sample.pss_growth_bytes
    figures = (before / 2**20, growth / 2**20, growth / 2**10 / row.connections)
    return [row.server, str(row.connections), *map(_number, figures)]


def engine_table(rows: Sequence[EngineShare]) -> str:
    """Return one line for each real model."""
    titles = ["scenario", "batch", "requests at once", "engine items/s", "Naiad req/s", "share", "p50 ms", "p99 ms"]
    titles += ["engine CPU µs/item", "Naiad CPU µs/req", "added CPU µs/req"]
    return _table(titles, (_engine_cells(row) for row in rows))


def _engine_cells(row: EngineShare) -> list[str]:
    cells = [row.scenario, str(row.batch), str(row.concurrency), _number(row.engine.items_per_s)]
    cells += [_number(row.naiad.requests_per_s), f"{row.share:.1%}"]
    cells += [_milliseconds(row.naiad.p50_us), _milliseconds(row.naiad.p99_us)]
    return cells + [_number(row.engine.cpu_us), _number(row.naiad.cpu_us), _number(row.added_cpu_us)]


def footprint_table(rows: Sequence[Footprint]) -> str:
    """Return one line for each server."""
    cells = (
        [row.server, f"{row.sample.ready_s:.2f}", f"{row.sample.pss_bytes / 2**20:.0f}", f"{row.sample.rss_bytes / 2**20:.0f}"]
        for row in rows
    )
    return _table(["server", "start to ready s", "PSS MiB", "RSS MiB"], cells)


def many_models_table(rows: Sequence[ManyModels]) -> str:
    """Return one line for each server."""
    titles = ["server", "models", "start to ready s", "repository index ms", "stop s", "PSS KiB/model", "descriptors/model"]
    return _table(titles, (_many_models_cells(row) for row in rows))


def _many_models_cells(row: ManyModels) -> list[str]:
    found = row.sample
    figures = (
        found.ready_s,
        found.index_s * 1000,
        found.stop_s,
        found.pss_bytes_per_model / 2**10,
        found.descriptors_per_model,
    )
    return [row.server, str(row.models), *map(_number, figures)]


def _head(machine: Machine, settings: dict[str, Any]) -> str:
    changed = ", with changes that aren't committed" if machine.is_dirty else ""
    facts = [
        f"commit {machine.commit}{changed}",
        f"{machine.cpu_model}, {machine.cores} cores, {machine.system}, load average {machine.load_average} at the start",
        "versions: " + ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"`{machine.command}`: " + ", ".join(f"{name} {value}" for name, value in settings.items()),
    ]
    title = f"# Benchmark of {machine.date}"
    return f"{title}\n\nCompare within this page only: figures of two runs differ for many reasons.\n\n{_bullets(facts)}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [titles, rule, *rows])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _milliseconds(value_us: float | None) -> str:
    return ABSENT if value_us is None else f"{value_us / 1000:.2f}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else ABSENT
