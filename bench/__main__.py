"""The command `python -m bench`: reads the options, finds out what can be measured here, measures it, writes the page."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bench import machine, measure, report, triton_setup
from bench.contention.compare import compare_open_loop
from bench.contention.fairness import fairness
from bench.contention.scenarios import ADAPTIVE_SCENARIOS, BATCHINGS, LOAD_FACTORS, OVERLOAD, WITH_TIMEOUT, overload_scenario
from bench.errors import BenchError, Unavailable
from bench.grpc.idle import idle_growth
from bench.grpc.infer import find_modules
from bench.grpc.stream import stream_rates
from bench.http_infer import Form
from bench.many_models import many_models
from bench.measure import Setting, Starter
from bench.onnx.share import share_of_engine
from bench.results import Comparison, OpenLoop, Results
from bench.scenarios import (
    ENGINE_SCENARIOS,
    FAIRNESS,
    FOOTPRINT,
    IDLE,
    MANY,
    SCENARIOS,
    SEQUENCE_SCENARIOS,
    STREAM,
    VARIANTS,
    EngineScenario,
    Scenario,
    Variant,
    chosen_names,
    scenario_names,
)
from bench.sequences.compare import STATEFUL, WAYS, compare_sequences
from bench.servers import serves_grpc
from bench.triton_setup import Program

SERVERS = ("naiad", "triton")
RESULTS = Path(__file__).parent / "results"
_T = TypeVar("_T")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; return 0, or 1 when a server or a request failed, in which case no page is written."""
    options = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell starts background jobs with it ignored
        signal.signal(number, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="naiad-bench-") as folder:
            facts = machine.describe(arguments)
            results = _run(options, Path(folder))
        settings = {"rounds": options.rounds, "duration_s": options.duration, "quick": options.quick}
        page = report.write(options.results, facts, results, settings)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; the servers are stopped, nothing is written", file=sys.stderr)
        return 130
    print(f"\n{page.read_text()}\nwritten to {page}")
    return 0


def _run(options: argparse.Namespace, folder: Path) -> Results:
    left_out: list[str] = []
    names = _without_grpc(chosen_names(tuple(options.scenario)), left_out)
    setting = _prepare(options, folder, left_out)
    scenarios = [each for each in SCENARIOS if each.name in names and _has_generator(setting, each, left_out)]
    variants = [each for each in VARIANTS if _has_variant(each, left_out)]
    engines = _engine_scenarios(setting, names, left_out)
    return Results(
        comparisons=(*measure.compare(setting, scenarios, variants), *_sequence_rows(setting, names, left_out)),
        engines=tuple(share_of_engine(setting, engines)),
        footprints=tuple(measure.footprints(setting)) if FOOTPRINT in names else (),
        idles=tuple(idle_growth(setting)) if IDLE in names else (),
        streams=tuple(stream_rates(setting)) if STREAM in names else (),
        many_models=tuple(_attempt(MANY, left_out, lambda: many_models(setting)) or ()) if MANY in names else (),
        open_loops=tuple(_open_loops(setting, names)),
        fairness=tuple(_attempt(FAIRNESS, left_out, lambda: fairness(setting)) or ()) if FAIRNESS in names else (),
        left_out=tuple(left_out),
    )


def _prepare(options: argparse.Namespace, folder: Path, left_out: list[str]) -> Setting:
    """Install what is missing; what can't be had is left out and said so."""
    naiad: Starter | None = None
    triton: Starter | None = None
    if "naiad" in options.server:
        naiad = _attempt("Naiad", left_out, lambda: measure.naiad_starter(folder))
    if "triton" in options.server:
        triton = _attempt("Triton", left_out, lambda: measure.triton_starter(folder, triton_setup.triton()))
    left_out += [f"{name}: not asked for (--server)" for name in SERVERS if name not in options.server]
    if naiad is None and triton is None:
        raise BenchError("there is no server to measure: " + "; ".join(left_out))
    found: dict[str, Program | None] = {
        "wrk": _attempt("wrk", left_out, triton_setup.wrk),
        "h2load": _attempt("h2load", left_out, triton_setup.h2load),
        "perf_analyzer": _attempt("perf_analyzer", left_out, triton_setup.perf_analyzer),
    }
    generators = {name: program for name, program in found.items() if program is not None}
    return Setting(options.rounds, options.duration, folder, generators, naiad, triton)


def _without_grpc(names: frozenset[str], left_out: list[str]) -> frozenset[str]:
    """Return the scenarios that can be run with the packages of this environment; say so when Naiad can't take part."""
    grpc_names = names & {IDLE, STREAM, *(each.name for each in SCENARIOS if each.form is Form.GRPC)}
    if not grpc_names:
        return names
    if not serves_grpc(Path(sys.executable).parent / "naiad"):
        left_out.append(f"Naiad over gRPC: not built yet ({', '.join(sorted(grpc_names))})")
    try:
        find_modules()
    except Unavailable as error:
        left_out.append(f"{', '.join(sorted(grpc_names))}: {error}")
        return names - grpc_names
    return names


def _attempt(what: str, left_out: list[str], get: Callable[[], _T]) -> _T | None:
    try:
        return get()
    except Unavailable as error:
        left_out.append(f"{what}: {error}")
        return None


def _has_generator(setting: Setting, scenario: Scenario, left_out: list[str]) -> bool:
    if scenario.generator in setting.generators:
        return True
    left_out.append(f"{scenario.name}: without {scenario.generator} there is no load")
    return False


def _has_variant(variant: Variant, left_out: list[str]) -> bool:
    """Whether Naiad can run models that way here: the module is looked up, not imported."""
    if not variant.module or importlib.util.find_spec(variant.module) is not None:
        return True
    left_out.append(f"Naiad, {variant.title}: there is no {variant.module}")
    return False


def _sequence_rows(setting: Setting, names: frozenset[str], left_out: list[str]) -> list[Comparison]:
    """Measure the chosen ones: those need wrk, and Naiad's ONNX models the packages onnx and onnxruntime."""
    chosen = [each for each in SEQUENCE_SCENARIOS if each.name in names]
    if "wrk" not in setting.generators:
        left_out.extend(f"{each.name}: without wrk there is no load" for each in chosen)
        return []
    has_onnx = all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))
    if chosen and not has_onnx:
        left_out.append(f"Naiad, {STATEFUL.title}: needs onnx and onnxruntime")
    return compare_sequences(setting, chosen, [each for each in WAYS if has_onnx or each is not STATEFUL])


def _open_loops(setting: Setting, names: frozenset[str]) -> list[OpenLoop]:
    adaptive = [each for each in ADAPTIVE_SCENARIOS if each.name in names]
    overload = [overload_scenario(factor) for factor in LOAD_FACTORS] if OVERLOAD in names else []
    return [*compare_open_loop(setting, adaptive, BATCHINGS), *compare_open_loop(setting, overload, [WITH_TIMEOUT])]


def _engine_scenarios(setting: Setting, names: frozenset[str], left_out: list[str]) -> list[EngineScenario]:
    """Return the chosen ones that can be measured: those need Naiad, wrk, ONNX Runtime and their model file."""
    chosen = [each for each in ENGINE_SCENARIOS if each.name in names]
    if importlib.util.find_spec("onnxruntime") is None or "wrk" not in setting.generators or setting.naiad is None:
        left_out.extend(f"{each.name}: needs Naiad, onnxruntime and wrk" for each in chosen)
        return []
    return [each for each in chosen if _attempt(each.name, left_out, each.find_model) is not None]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Naiad against the real C++ Triton.")
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one (repeatable): " + ", ".join(scenario_names()),
    )
    parser.add_argument("--server", action="append", choices=SERVERS, help="only this server (repeatable), both by default")
    parser.add_argument("--rounds", type=_positive_int, default=None, help="rounds, whose median counts (3)")
    parser.add_argument("--duration", type=_positive_int, default=None, help="seconds of one timed run (5)")
    parser.add_argument("--quick", action="store_true", help="one round of 2 s: proves that it works, says little about speed")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the page goes (bench/results)")
    options = parser.parse_args(arguments)
    options.server = options.server or list(SERVERS)
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.duration = options.duration or (2 if options.quick else 5)
    return options


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' must be a whole number from 1 on")
    return int(text)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # The exception runs every clean-up on its way, so that no server is left behind.
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
