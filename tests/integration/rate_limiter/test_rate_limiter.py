"""Models that share a resource, and call others while they have it."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import ensembles
import pytest
from model_folders import identity, write_model
from server_process import ServerProcess

CALLS = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.file = os.path.join(args["model_repository"], "..", "..", "runs.txt")

    def execute(self, requests):
        answers = []
        for request in requests:
            begun = time.monotonic()
            x = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name=TARGET, requested_output_names=["Y"], inputs=[x])
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            y = pb_utils.get_output_tensor_by_name(answer, "Y")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy())]))
            with open(self.file, "a") as file:
                file.write(f"{begun} {time.monotonic()}\\n")
        return answers
"""


def calling(repository: Path, name: str, target: str, resources: str, priority: int = 0) -> None:
    folder = write_model(
        repository,
        name,
        f"""
        backend: "python" max_batch_size: 8
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}]
        instance_group [{{ kind: KIND_CPU count: 1 rate_limiter {{ {resources} priority: {priority} }} }}]
        """,
    )
    (folder / "1" / "model.py").write_text(CALLS.replace("TARGET", repr(target)))


def need(name: str, count: int = 1) -> str:
    return f'resources [{{ name: "{name}" global: true count: {count} }}]'


BODY = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [3]}]}


def ask_all(server: ServerProcess, models: list[str], count: int) -> list[str]:
    """Ask the models in turn from 8 threads, `count` times each; return what went wrong."""
    wrong: list[str] = []

    def ask(first: int) -> None:
        for number in range(first, first + count):
            response = server.infer(models[number % len(models)], BODY)
            if response.status_code != 200 or response.json()["outputs"][0]["data"] != [3]:
                wrong.append(response.text)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@pytest.mark.parametrize(
    ("b", "c", "priority"),
    [(need("R"), need("R"), 0), (need("R"), need("R"), 10), (need("R") + need("S", 2), need("R", 2) + need("S"), 0)],
    ids=["same", "priority", "two resources"],
)
def test_models_that_share_a_resource_and_call_a_third_one_never_lock_each_other(tmp_path, serve, b, c, priority):
    repository = tmp_path / "models"
    identity(repository, "echo", dims="-1")
    calling(repository, "b", "echo", b)
    calling(repository, "c", "echo", c, priority)
    server = serve(repository, "--rate-limit=execution_count")
    assert ask_all(server, ["b", "c"], 25) == []
    times = sorted(tuple(map(float, line.split())) for line in (tmp_path / "runs.txt").read_text().splitlines())
    assert len(times) == 200
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times)), "two ran at the same time"


def test_an_ensemble_of_two_that_share_a_resource_holds_it_for_no_longer_than_a_step(tmp_path, serve):
    repository = tmp_path / "models"
    identity(repository, "echo", dims="-1")
    calling(repository, "b", "echo", need("R"))
    calling(repository, "c", "echo", need("R"))
    ensembles.chain(repository, "ens", ["b", "c"])
    server = serve(repository, "--rate-limit=execution_count", "--rate-limit-resource=R:1")
    assert ask_all(server, ["ens", "b", "c"], 24) == []
    times = sorted(tuple(map(float, line.split())) for line in (tmp_path / "runs.txt").read_text().splitlines())
    assert len(times) == 8 * (8 * 2 + 8 + 8)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times)), "two ran at the same time"


def test_a_call_of_a_model_that_needs_what_the_caller_holds_is_refused_with_the_circle(tmp_path, serve):
    repository = tmp_path / "models"
    identity(repository, "echo", dims="-1")
    calling(repository, "b", "c", need("R"))
    calling(repository, "c", "echo", need("R"))
    server = serve(repository, "--rate-limit=execution_count", "--rate-limit-resource=R:1")
    response = server.infer("b", BODY)
    assert response.status_code == 500
    assert "model 'c' needs resource 'R', which 'b' holds while it waits for the answer of 'c'" in response.json()["error"]
    assert server.infer("c", BODY).json()["outputs"][0]["data"] == [3]


def test_with_two_of_it_the_same_call_goes_through(tmp_path, serve):
    repository = tmp_path / "models"
    identity(repository, "echo", dims="-1")
    calling(repository, "b", "c", need("R"))
    calling(repository, "c", "echo", need("R"))
    server = serve(repository, "--rate-limit=execution_count", "--rate-limit-resource=R:2")
    assert server.infer("b", BODY).json()["outputs"][0]["data"] == [3]


def test_a_model_that_needs_more_than_there_is_fails_to_load_and_without_the_limiter_serves(tmp_path, serve):
    group = f"instance_group [{{ kind: KIND_CPU rate_limiter {{ {need('R', 3)} }} }}]"
    identity(tmp_path, dims="-1", more=group)
    server = ServerProcess(tmp_path, "--rate-limit=execution_count", "--rate-limit-resource=R:2")
    assert server.wait() == 1
    assert 'Resource count for "R" is limited to 2' in server.log()
    assert "the minimum required count is 3" in server.log()
    assert serve(tmp_path).infer("echo", BODY).status_code == 200
    assert serve(tmp_path, "--rate-limit=execution_count").infer("echo", BODY).status_code == 200
