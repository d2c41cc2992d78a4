"""Instances run on the CPUs of their host policy: worker processes, batches in the server, and the engine's threads."""

import os
from pathlib import Path

import onnx_models
import pytest
from model_folders import identity
from server_process import ServerProcess

CPUS = sorted(os.sched_getaffinity(0))
LAST = CPUS[-1]

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="bound and unbound can't be told apart on one CPU")

TELLS = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

AT_IMPORT = os.sched_getaffinity(0)


class TritonPythonModel:
    def execute(self, requests):
        mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
        early = sum(1 << cpu for cpu in AT_IMPORT)
        threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        told = np.array([mask, early, threads, os.getpid()], np.int64)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", told)]) for _ in requests]
"""
TENSORS = """
input [ { name: "X" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT64 dims: [ 4 ] } ]
"""


def telling_model(repository: Path, name: str, groups: str) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(TELLS)
    (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{TENSORS}\n{groups}')


def ask(server: ServerProcess, model: str) -> list[int]:
    """Return the CPUs of a worker as a mask, those at its import, its OMP_NUM_THREADS (0: none) and its pid."""
    answer = server.infer(model, {"inputs": [{"name": "X", "datatype": "INT64", "shape": [1], "data": [0]}]}).json()
    return answer["outputs"][0]["data"]


def bound_thread_count(pid: int, cpu: int) -> int:
    """Return how many threads of a process may run on `cpu` only."""
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(f"Cpus_allowed_list:\t{cpu}\n" in text for text in texts)


def test_a_worker_runs_on_the_cpus_of_its_policy_from_before_its_first_import(serve, tmp_path):
    telling_model(tmp_path, "mine", 'instance_group { kind: KIND_CPU host_policy: "one" }')
    telling_model(tmp_path, "any", "")
    server = serve(tmp_path, f"--host-policy=one,cpu-cores={LAST}")
    every = sum(1 << cpu for cpu in CPUS)
    assert ask(server, "mine")[:2] == [1 << LAST, 1 << LAST]
    assert ask(server, "any")[:2] == [every, every]


def test_a_worker_that_is_started_again_is_bound_again(serve, tmp_path):
    telling_model(tmp_path, "m", "")
    server = serve(tmp_path, f"--host-policy=cpu,cpu-cores={LAST}", "--worker-restart-delay-secs=0.001")
    *_, pid = ask(server, "m")
    os.kill(pid, 9)
    mask, early, _, second = ask(server, "m")
    assert second != pid
    assert (mask, early) == (1 << LAST, 1 << LAST)


def test_workers_of_one_model_share_the_cpus_among_their_libraries(serve, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    telling_model(tmp_path, "many", f"instance_group {{ kind: KIND_CPU count: {len(CPUS)} }}")
    server = serve(tmp_path)
    assert ask(server, "many")[2] == 1


def test_batches_and_the_engines_threads_run_on_the_cpus_of_the_policy(serve, tmp_path):
    tensors = [onnx_models.value("x", "FP32", ["n", 3])], [onnx_models.value("y", "FP32", ["n", 3])]
    node = onnx_models.helper.make_node("Neg", ["x"], ["y"])
    folder = tmp_path / "neg"
    (folder / "1").mkdir(parents=True)
    onnx_models.save(onnx_models.model([node], *tensors), folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(
        'instance_group { kind: KIND_CPU count: 1 host_policy: "one" }'
        'parameters { key: "intra_op_thread_count" value { string_value: "3" } }'
    )
    identity(tmp_path)
    server = serve(tmp_path, f"--host-policy=one,cpu-cores={LAST}")
    # The engine's pool counts the thread that runs a batch as one of the three.
    assert bound_thread_count(server.pid, LAST) == 2
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
    for _ in range(200):
        assert server.infer("neg", body).json()["outputs"][0]["data"] == [-1, -2, -3]
    assert bound_thread_count(server.pid, LAST) == 3
    assert server.metric("naiad_in_place_runs_total", model="neg") == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("one,cpu-cores=60000", "names CPUs 60000, which this process may not use"),
        ("one,numa-node=999", "numa-node of policy 'one' is 999"),
        ("one,cpu-cores=x", "it is 'one,cpu-cores=x'"),
        ("one,numa=1", "it is 'one,numa=1'"),
    ],
)
def test_a_policy_that_can_not_be_ends_the_start(tmp_path, value, text):
    identity(tmp_path)
    server = ServerProcess(tmp_path, f"--host-policy={value}")
    assert server.wait() == 1
    assert text in server.log()
    assert "Traceback" not in server.log()
