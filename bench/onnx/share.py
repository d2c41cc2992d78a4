"""Measures how much of a bare engine's speed reaches Naiad's clients, and the CPU time that serving adds. Owns that comparison.

Engine and server are bound to the same single core, the load generator to the others: what the server needs for itself is
taken from the engine, as on a machine that is full.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.http_infer import Array, Form
from bench.load import LoadPlan
from bench.measure import Setting, Shot, Subject, fire
from bench.results import EngineSample, EngineShare, median_engine, median_sample
from bench.scenarios import EngineScenario, engine_model
from bench.servers import Server, bound_to

ROOT = Path(__file__).parent.parent.parent


def share_of_engine(setting: Setting, scenarios: Sequence[EngineScenario]) -> list[EngineShare]:
    """Run the bare engine and Naiad in alternating rounds; return a row for each scenario, none without Naiad.

    Raises BenchError when either fails or their answers differ, and Unavailable when a model file can't be had.
    """
    if not scenarios or setting.naiad is None:
        return []
    server_cores, generator_cores = split_cores(sorted(os.sched_getaffinity(0)))
    models = tuple(engine_model(scenario) for scenario in scenarios)
    with setting.naiad("onnx", models, server_cores) as naiad:
        return [_share_one(setting, scenario, naiad, server_cores, generator_cores) for scenario in scenarios]


def split_cores(cores: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the one core for engine and server and the rest for the generator; both empty, for no binding, on one core."""
    return ((cores[0],), tuple(cores[1:])) if len(cores) > 1 else ((), ())


def _share_one(
    setting: Setting, scenario: EngineScenario, naiad: Server, server_cores: Sequence[int], generator_cores: tuple[int, ...]
) -> EngineShare:
    item, engine_samples, naiad_samples = scenario.item(), [], []
    for number in range(setting.rounds):
        print(f"{scenario.name}, round {number + 1}: engine, Naiad", flush=True)
        sample, answer = _run_engine(setting, scenario, item, server_cores)
        engine_samples.append(sample)
        plan = LoadPlan(scenario.concurrency, setting.duration_s, generator_cores)
        shot = Shot({scenario.input.name: item}, {scenario.output.name: answer}, Form.BINARY, plan)
        naiad_samples.append(fire(setting, Subject("", naiad, scenario.name), shot))
    engine, served = median_engine(engine_samples), median_sample(naiad_samples)
    return EngineShare(scenario.name, scenario.batch, scenario.concurrency, engine, served)


def _run_engine(setting: Setting, scenario: EngineScenario, item: Array, cores: Sequence[int]) -> tuple[EngineSample, Array]:
    given, answer = setting.folder / "item.npy", setting.folder / "answer.npy"
    np.save(given, item)
    command = [*bound_to(cores), sys.executable, "-m", "bench.onnx.loop", "--model", str(scenario.find_model())]
    command += ["--input", str(given), "--answer", str(answer), "--batch", str(scenario.batch)]
    command += ["--duration", str(setting.duration_s)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the bare engine failed on {scenario.name}: {done.stderr[-800:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return EngineSample(found["items"] / found["seconds"], found["cpu_s"] * 1e6 / found["items"]), np.load(answer)
