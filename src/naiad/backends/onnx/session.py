"""Opening ONNX Runtime sessions, and putting the engine's errors into ours.

Owns all options given to the engine. What the options should be belongs to `config` and `providers`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from naiad.backends.base import ModelFiles
from naiad.backends.onnx.config import SessionConfig
from naiad.backends.onnx.providers import CPU, CUDA, Provider
from naiad.devices.affinity import unbound
from naiad.devices.cpus import thread_cpu_count
from naiad.errors import Code, FailureReason, InferenceServerError, invalid_argument

Session = Any
"""An `onnxruntime.InferenceSession`, which has no types."""

MODEL_FILE = "model.onnx"

_LOG_WARNINGS = 2
_LOG_ERRORS = 3
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LEVELS = {
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
_PACKAGES = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
}


def open_session(files: ModelFiles, config: SessionConfig, providers: Sequence[Provider] = ((CPU, {}),)) -> Session:
    """Return a session of the model file; blocking. Raises INVALID_ARGUMENT naming the file and the reason."""
    path = model_path(files)
    _check_installed(files, providers)
    if config.uses_global_pool:
        _make_global_pool(config)
    onnxruntime.disable_telemetry_events()
    try:
        return onnxruntime.InferenceSession(
            str(path), sess_options=_session_options(config), providers=list(providers), enable_fallback=0
        )
    except Exception as error:
        # The engine's exceptions have no common base, and every one of them says why this file or its settings won't do.
        raise invalid_argument(f"model '{files.model_name}': can't load '{path}': {engine_text(error)}") from error


def model_path(files: ModelFiles) -> Path:
    """Return the model file: `files.path`, or `model.onnx` in it. Raises INVALID_ARGUMENT when there is none."""
    path = files.path / MODEL_FILE if files.path.is_dir() else files.path
    if not path.is_file():
        raise invalid_argument(f"model '{files.model_name}': there is no model file '{path}'")
    return path


def run_options(config: SessionConfig) -> Any:
    """Return the engine's options for each run, None when all are the defaults."""
    if not config.run_entries:
        return None
    options = onnxruntime.RunOptions()
    for key, value in config.run_entries.items():
        options.add_run_config_entry(key, value)
    return options


def run_error(model_name: str, error: Exception) -> InferenceServerError:
    """Return `error`, raised by a run, as ours: INVALID_ARGUMENT when the engine says so (an input's shape, a missing input),
    INTERNAL otherwise.
    """
    # A missing input is found by the engine's Python part, which raises ValueError for nothing else.
    is_clients = isinstance(error, (InvalidArgument, ValueError)) and not isinstance(error, UnicodeError)
    code = Code.INVALID_ARGUMENT if is_clients else Code.INTERNAL
    return InferenceServerError(
        code, f"model '{model_name}' failed in onnxruntime: {engine_text(error)}", FailureReason.BACKEND
    )


def engine_text(error: Exception) -> str:
    """Return the engine's message without its prefix."""
    return _PREFIX.sub("", str(error)) or type(error).__name__


def _session_options(config: SessionConfig) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LOG_WARNINGS if config.logs_warnings else _LOG_ERRORS
    options.graph_optimization_level = _LEVELS[config.graph_level]
    options.enable_cpu_mem_arena = config.has_mem_arena
    options.enable_mem_pattern = config.has_mem_pattern
    if config.is_parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    if config.uses_global_pool:
        options.use_per_session_threads = False
    else:
        # The engine itself would count the machine's cores and bind a thread to each, whatever this process may use.
        options.intra_op_num_threads = config.intra_op_threads or thread_cpu_count()
        options.inter_op_num_threads = config.inter_op_threads or thread_cpu_count()
    for key, value in config.entries.items():
        options.add_session_config_entry(key, value)
    return options


def _make_global_pool(config: SessionConfig) -> None:
    """Make the engine's shared pool; it can be made once in a process, and the first model's setting is that of all."""
    try:
        # It is everyone's, so the CPUs of the first model's host policy aren't its own.
        with unbound():
            count = thread_cpu_count()
            onnxruntime.set_global_thread_pool_sizes(config.intra_op_threads or count, config.inter_op_threads or count)
    except Fail as error:
        if "already been created" not in str(error):
            raise


def has_gpus() -> bool:
    """Return whether the installed engine has the provider for NVIDIA's GPUs."""
    return CUDA in onnxruntime.get_available_providers()


def _check_installed(files: ModelFiles, providers: Sequence[Provider]) -> None:
    available = onnxruntime.get_available_providers()
    for name, _ in providers:
        if name not in available:
            raise invalid_argument(
                f"model '{files.model_name}' needs onnxruntime's {name}, which the installed onnxruntime doesn't have: "
                f"install {_PACKAGES[name]} in its place"
            )
