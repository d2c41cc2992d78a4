"""Which execution providers run a model: the CPU, or a GPU for instances of KIND_GPU, and the accelerators of the config.

Owns the names and options as the engine spells them. Whether a provider is installed, `session` checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naiad.backends.base import ModelFiles
from naiad.backends.onnx.config import Options
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.errors import invalid_argument

Provider = tuple[str, dict[str, str]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"

_CUDA_PARAMETERS = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
    "gpu_mem_limit": {},
    "do_copy_in_default_stream": {},
}
"""The model parameters that are CUDA's, with the engine's word for each number."""

_TENSORRT_NAMES = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_TENSORRT_PRECISIONS = {
    "FP32": {},
    "FP16": {"trt_fp16_enable": "1"},
    "BF16": {"trt_bf16_enable": "1"},
    "INT8": {"trt_int8_enable": "1"},
}


def providers(plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> list[Provider]:
    """Return the providers of `instance` with their options, the preferred one first; the CPU's is always the last.

    Raises INVALID_ARGUMENT for an accelerator or a value that isn't known.
    """
    accelerators = plan.config.get("optimization", {}).get("execution_accelerators", {})
    if instance.kind != "GPU":
        chosen = [_cpu_accelerator(plan, item) for item in accelerators.get("cpu_execution_accelerator", ())]
        return [*chosen, (CPU, {})]
    device = {"device_id": str(instance.device_id)}
    cuda = {**_cuda_options(files), **device}
    chosen = []
    for item in accelerators.get("gpu_execution_accelerator", ()):
        if item["name"] == "cuda":
            cuda.update(item.get("parameters", {}))
        else:
            chosen.append(_tensorrt(plan, item, device))
    return [*chosen, (CUDA, cuda), (CPU, {})]


def _cpu_accelerator(plan: ModelPlan, item: Mapping[str, Any]) -> Provider:
    if item["name"] != "openvino":
        raise _unknown(plan, "cpu_execution_accelerator", item["name"], "openvino")
    return OPENVINO, dict(item.get("parameters", {}))


def _tensorrt(plan: ModelPlan, item: Mapping[str, Any], device: Mapping[str, str]) -> Provider:
    if item["name"] != "tensorrt":
        raise _unknown(plan, "gpu_execution_accelerator", item["name"], "cuda, tensorrt")
    options = dict(device)
    for key, value in item.get("parameters", {}).items():
        if key == "precision_mode":
            if value not in _TENSORRT_PRECISIONS:
                raise _unknown(plan, "precision_mode", value, ", ".join(_TENSORRT_PRECISIONS))
            options.update(_TENSORRT_PRECISIONS[value])
        elif key in _TENSORRT_NAMES or key.startswith("trt_"):
            options[_TENSORRT_NAMES.get(key, key)] = value
        else:
            raise _unknown(plan, "tensorrt parameter", key, f"precision_mode, {', '.join(_TENSORRT_NAMES)}, trt_…")
    return TENSORRT, options


def _cuda_options(files: ModelFiles) -> dict[str, str]:
    options = Options(files)
    chosen = {}
    for key, words in _CUDA_PARAMETERS.items():
        text = options.text(key)
        if text is None:
            continue
        if words and text not in words and text not in words.values():
            raise options.refusal(key, text, f"one of {', '.join(words)}")
        chosen[key] = words.get(text, text)
    return chosen


def _unknown(plan: ModelPlan, what: str, value: str, allowed: str) -> Exception:
    return invalid_argument(
        f"model '{plan.name}': {what} '{value}' in 'optimization.execution_accelerators' isn't known; known: {allowed}"
    )
