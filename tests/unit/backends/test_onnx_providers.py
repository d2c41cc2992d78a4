"""Instances and accelerators become execution providers with their options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import plans
import pytest

from naiad.backends.base import ModelFiles
from naiad.backends.onnx.providers import Provider, providers
from naiad.config.plan import InstancePlan
from naiad.errors import InferenceServerError

CPU = InstancePlan("m_0", "CPU", -1, "m")
GPU = InstancePlan("m_0_gpu1", "GPU", 1, "m")
CPU_PROVIDER: Provider = ("CPUExecutionProvider", {})


def _providers(
    instance: InstancePlan, accelerators: dict[str, Any] | None = None, parameters: dict[str, str] | None = None
) -> list[Provider]:
    plan = replace(plans.plan([], []), config={"optimization": {"execution_accelerators": accelerators or {}}})
    return providers(plan, instance, ModelFiles("m", Path("m"), parameters or {}))


def test_a_cpu_instance_runs_on_the_cpu_alone():
    assert _providers(CPU) == [CPU_PROVIDER]
    assert _providers(replace(CPU, kind="MODEL")) == [CPU_PROVIDER]


def test_a_gpu_instance_runs_on_its_device_before_the_cpu():
    assert _providers(GPU) == [("CUDAExecutionProvider", {"device_id": "1"}), CPU_PROVIDER]


def test_numbers_of_cuda_parameters_become_the_engines_words():
    parameters = {"cudnn_conv_algo_search": "1", "arena_extend_strategy": "0", "gpu_mem_limit": "1000"}
    options = {
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kNextPowerOfTwo",
        "gpu_mem_limit": "1000",
        "device_id": "1",
    }
    assert ("CUDAExecutionProvider", options) == _providers(GPU, parameters=parameters)[0]


def test_a_wrong_cuda_parameter_is_named():
    with pytest.raises(InferenceServerError, match="'cudnn_conv_algo_search' is '7', must be one of 0, 1, 2"):
        _providers(GPU, parameters={"cudnn_conv_algo_search": "7"})


def test_the_cuda_accelerator_adds_options():
    accelerators = {"gpu_execution_accelerator": [{"name": "cuda", "parameters": {"use_tf32": "0"}}]}
    assert _providers(GPU, accelerators) == [("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "0"}), CPU_PROVIDER]


def test_the_tensorrt_accelerator_comes_first_and_its_parameters_are_translated():
    parameters = {"precision_mode": "FP16", "max_workspace_size_bytes": "5", "trt_engine_cache_enable": "1"}
    accelerators = {"gpu_execution_accelerator": [{"name": "tensorrt", "parameters": parameters}]}
    options = {"device_id": "1", "trt_fp16_enable": "1", "trt_max_workspace_size": "5", "trt_engine_cache_enable": "1"}
    made = _providers(GPU, accelerators)
    assert ("TensorrtExecutionProvider", options) == made[0]
    assert [name for name, _ in made[1:]] == ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_the_openvino_accelerator_serves_the_cpu():
    accelerators = {"cpu_execution_accelerator": [{"name": "openvino", "parameters": {}}]}
    assert _providers(CPU, accelerators) == [("OpenVINOExecutionProvider", {}), CPU_PROVIDER]


@pytest.mark.parametrize(
    ("instance", "accelerators", "text"),
    [
        (CPU, {"cpu_execution_accelerator": [{"name": "tvm"}]}, "'tvm'.*known: openvino"),
        (GPU, {"gpu_execution_accelerator": [{"name": "tvm"}]}, "'tvm'.*known: cuda, tensorrt"),
        (GPU, {"gpu_execution_accelerator": [{"name": "tensorrt", "parameters": {"precision_mode": "FP8"}}]}, "'FP8'.*INT8"),
        (GPU, {"gpu_execution_accelerator": [{"name": "tensorrt", "parameters": {"bogus": "1"}}]}, "'bogus'.*trt_"),
    ],
)
def test_what_is_not_known_is_named_with_what_is(instance: InstancePlan, accelerators: dict[str, Any], text: str):
    with pytest.raises(InferenceServerError, match=text):
        _providers(instance, accelerators)
