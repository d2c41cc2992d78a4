"""A server that loads and unloads a Python model again and again in one process keeps nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_INSTANCES = 2
_MIB = 1 << 20

_MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.ones(13_000_000, np.float32)
        self.folder = args["model_repository"]

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())]) for request in requests]

    def finalize(self):
        with open(os.path.join(self.folder, "finalized"), "a") as file:
            file.write("once\\n")
"""

_CONFIG = f"""
max_batch_size: 8
input [{{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}]
instance_group [{{ count: {_INSTANCES} }}]
dynamic_batching {{}}
"""

_ROUNDS = """
import gc, json, sys
import naiad, numpy as np, psutil

repository, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
own = psutil.Process()
x = np.ones((2, 100_000), np.float32)
for number in range(1, last + 1):
    with naiad.Server(http=False, model_repository=repository) as server:
        assert np.array_equal(server.models["big"].infer({"X": x})["Y"], x)
        workers = len(own.children())
    if number in (first, last):
        gc.collect()
        facts = {
            "workers": workers,
            "children": len(own.children(recursive=True)),
            "threads": own.num_threads(),
            "files": own.num_fds(),
            "rss": own.memory_info().rss,
        }
        print(json.dumps(facts))
"""


def _facts(repository: Path, first: int, last: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return what the process holds after the round `first` and after the round `last`, with the model unloaded."""
    version = repository / "big" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_MODEL)
    (version.parent / "config.pbtxt").write_text(_CONFIG)
    command = [sys.executable, "-c", _ROUNDS, str(repository), str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    early, late = (json.loads(line) for line in done.stdout.splitlines())
    return early, late


def _check(repository: Path, early: dict[str, int], late: dict[str, int], rounds: int) -> None:
    assert (early["workers"], late["workers"]) == (_INSTANCES, _INSTANCES)
    assert (early["children"], late["children"]) == (0, 0)
    assert (early["threads"], early["files"]) == (late["threads"], late["files"])
    assert late["rss"] < early["rss"] * 1.1 + 30 * _MIB
    assert (repository / "big" / "finalized").read_text().splitlines() == ["once"] * (_INSTANCES * rounds)


@pytest.mark.timeout(60)
def test_rounds_of_load_and_unload_leave_nothing(tmp_path: Path):
    _check(tmp_path, *_facts(tmp_path, 4, 12), 12)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_many_rounds_of_load_and_unload_leave_nothing(tmp_path: Path):
    _check(tmp_path, *_facts(tmp_path, 20, 60), 60)
