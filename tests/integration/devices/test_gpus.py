"""A server on a machine with GPUs, as far as that goes without one: the package that tells of them is a stand-in."""

import os
from pathlib import Path

import pytest
import requests
from fake_nvml import GIB
from model_folders import identity
from server_process import ServerProcess

SUPPORT = Path(__file__).parents[2] / "support"
# One of three is too old for models.
PYNVML = """
from fake_nvml import FakeGpu, FakeNvml, NVMLError

_nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", capability=(5, 0)), FakeGpu("GPU-c"))


def __getattr__(name):
    return getattr(_nvml, name)
"""
TELLS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.told = f"{args['model_instance_name']} {args['model_instance_kind']} {args['model_instance_device_id']}"

    def execute(self, requests):
        told = np.array([self.told], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", told)]) for _ in requests]
"""
TENSORS = """
backend: "python"
input [ { name: "X" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
BODY = {"inputs": [{"name": "X", "datatype": "INT64", "shape": [1], "data": [0]}]}


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """What a server needs to take the stand-in for the package."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "pynvml.py").write_text(PYNVML)
    paths = (str(folder), str(SUPPORT), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "CUDA_VISIBLE_DEVICES": "0,1,2"}


def telling_model(repository: Path, name: str, groups: str) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(TELLS)
    (folder.parent / "config.pbtxt").write_text(f"{TENSORS}\n{groups}")


def test_models_go_on_the_gpus_that_are_new_enough(serve, tmp_path, environment):
    models = tmp_path / "models"
    telling_model(models, "on_gpu", "instance_group { kind: KIND_GPU gpus: 2 }")
    telling_model(models, "on_all", "instance_group { kind: KIND_GPU }")
    telling_model(models, "on_cpu", "")
    server = serve(models, environment=environment)
    assert server.infer("on_gpu", BODY).json()["outputs"][0]["data"] == ["on_gpu_0_0_gpu2 GPU 2"]
    assert server.infer("on_cpu", BODY).json()["outputs"][0]["data"] == ["on_cpu_0 CPU 0"]
    [group] = requests.get(f"{server.url}/v2/models/on_all/config", timeout=10).json()["instance_group"]
    assert (group["kind"], group["count"], group["gpus"]) == ("KIND_GPU", 1, [0, 2])


def test_metrics_show_every_gpu_unless_they_are_off(serve, tmp_path, environment):
    identity(tmp_path / "models")
    server = serve(tmp_path / "models", environment=environment)
    assert server.metric("nv_gpu_memory_total_bytes", gpu_uuid="GPU-b") == 24 * GIB
    assert server.metric("nv_gpu_power_usage", gpu_uuid="GPU-c") == 70.5
    server = serve(tmp_path / "models", "--allow-gpu-metrics=false", environment=environment)
    assert "nv_gpu" not in requests.get(f"http://{server.metrics}/metrics", timeout=10).text


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (
            "gpus: 1",
            "specifies invalid or unsupported gpu id 1. GPUs with at least the minimum required CUDA compute capability",
        ),
        ("gpus: 7", "capability of 6.0 are: 0, 2"),
    ],
)
def test_a_gpu_that_can_not_be_had_is_refused(tmp_path, environment, group, text):
    telling_model(tmp_path / "models", "m", f"instance_group {{ kind: KIND_GPU {group} }}")
    server = ServerProcess(tmp_path / "models", environment=environment)
    assert server.wait() == 1
    assert text in server.log()


@pytest.mark.gpu
def test_a_real_gpu_is_found_and_shown(serve, tmp_path):
    telling_model(tmp_path, "m", "instance_group { kind: KIND_GPU gpus: 0 }")
    server = serve(tmp_path)
    assert server.infer("m", BODY).json()["outputs"][0]["data"] == ["m_0_0_gpu0 GPU 0"]
    assert "nv_gpu_memory_total_bytes{gpu_uuid=" in requests.get(f"http://{server.metrics}/metrics", timeout=10).text


def test_instances_go_where_most_memory_is_free_when_the_config_says_so(serve, tmp_path, environment):
    models = tmp_path / "models"
    parameters = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in (("gpu_placement", "free_memory"), ("gpu_memory_bytes", "1G"))
    )
    telling_model(models, "spread", f"instance_group {{ kind: KIND_GPU count: 3 }} {parameters}")
    server = serve(models, environment=environment)
    groups = requests.get(f"{server.url}/v2/models/spread/config", timeout=10).json()["instance_group"]
    assert [(group["count"], group["gpus"]) for group in groups] == [(2, [0]), (1, [2])]
    told = {server.infer("spread", BODY).json()["outputs"][0]["data"][0].split(" ", 1)[1] for _ in range(9)}
    assert told <= {"GPU 0", "GPU 2"}
