"""Writes model repositories: a folder a model, with config.pbtxt and the files of version 1.

Owns the text of the configs. Both servers get the same one, but for the backend and the parameters that only one of them knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: its name, the config's data type (TYPE_FP32) and the shape of one item, -1 for variable sizes."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """One model to serve. `file` is copied to `1/<file_name>`; `is_batched` turns the dynamic batcher on,
    `is_decoupled` lets it answer a request with any number of responses.
    """

    name: str
    backend: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = 0
    is_batched: bool = False
    is_decoupled: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    file_name: str = ""


def write_repository(root: Path, models: tuple[Model, ...]) -> Path:
    """Write `models` below the folder `root`, which is made anew, and return it."""
    shutil.rmtree(root, ignore_errors=True)
    for model in models:
        version = root / model.name / "1"
        version.mkdir(parents=True)
        (root / model.name / "config.pbtxt").write_text(config_text(model))
        if model.file is not None:
            shutil.copyfile(model.file, version / model.file_name)
    return root


def config_text(model: Model) -> str:
    """Return the config.pbtxt of one model."""
    lines = [f'name: "{model.name}"', f'backend: "{model.backend}"', f"max_batch_size: {model.max_batch_size}"]
    lines += [f"input {_tensor_text(tensor)}" for tensor in model.inputs]
    lines += [f"output {_tensor_text(tensor)}" for tensor in model.outputs]
    lines += ["instance_group { count: 1 kind: KIND_CPU }"]
    lines += ["dynamic_batching { }"] if model.is_batched else []
    lines += ["model_transaction_policy { decoupled: true }"] if model.is_decoupled else []
    lines += [f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}' for key, text in model.parameters.items()]
    return "\n".join(lines) + "\n"


def _tensor_text(tensor: Tensor) -> str:
    dims = ", ".join(str(size) for size in tensor.dims)
    return f'{{ name: "{tensor.name}" data_type: {tensor.data_type} dims: [ {dims} ] }}'
