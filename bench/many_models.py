"""Starts Naiad with a repository of many small ONNX models: how long that takes, what it lists, and what each model costs.

Triton has no row: its public wheel has the Python backend only, which would be a process for each model.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from pathlib import Path

from bench.errors import BenchError, Unavailable
from bench.http_infer import InferRequest, exchange
from bench.measure import Setting
from bench.results import ManyModels, ManyModelsSample, median_many_models
from bench.scenarios import MANY, MANY_MODELS
from bench.servers import Server, naiad_launch, serving

INDEX_CALLS = 5


def many_models(setting: Setting, count: int = MANY_MODELS) -> list[ManyModels]:
    """Start the server afresh every round, with one model and with `count`; return a row for Naiad.

    Raises Unavailable without Naiad or the package onnx, BenchError when a model isn't ready.
    """
    if setting.naiad is None:
        raise Unavailable("Naiad isn't measured")
    if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxruntime") is None:
        raise Unavailable("onnx and onnxruntime are needed")
    from bench.models.many import write_many  # noqa: PLC0415 — needs onnx

    repositories = {1: setting.folder / "one-model", count: setting.folder / "many-models"}
    for number, folder in repositories.items():
        write_many(folder, number)
    samples = []
    for number in range(setting.rounds):
        print(f"{MANY}, round {number + 1}: Naiad", flush=True)
        samples.append(_measure(repositories, count))
    return [ManyModels("Naiad", count, median_many_models(samples))]


def _measure(repositories: dict[int, Path], count: int) -> ManyModelsSample:
    with serving(naiad_launch(repositories[1]), repositories[1].with_suffix(".log")) as server:
        one_pss, one_descriptors = server.memory_bytes()[0], server.descriptors()
    with serving(naiad_launch(repositories[count]), repositories[count].with_suffix(".log")) as server:
        ready_s, pss, descriptors = server.ready_s, server.memory_bytes()[0], server.descriptors()
        index_s = statistics.median(_index(server, count) for _ in range(INDEX_CALLS))
        began = time.monotonic()
    stop_s = time.monotonic() - began
    others = count - 1
    return ManyModelsSample(ready_s, index_s, stop_s, (pss - one_pss) / others, (descriptors - one_descriptors) / others)


def _index(server: Server, count: int) -> float:
    """Return how many seconds the repository index takes. Raises BenchError when not every model is ready."""
    began = time.monotonic()
    status, _, body = exchange(server.address, "POST", InferRequest("/v2/repository/index", {}, b""))
    seconds = time.monotonic() - began
    ready = sum(entry["state"] == "READY" for entry in json.loads(body)) if status == 200 else 0
    if ready != count:
        raise BenchError(f"{server.name}: {ready} of {count} models are ready")
    return seconds
