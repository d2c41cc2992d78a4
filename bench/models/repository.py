"""Writes model repositories: a folder a model, with config.pbtxt and the files of version 1.

Owns the text of the configs. Both servers get the same one, but for the backend and the parameters that only one of them knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: its name, the config's data type (TYPE_FP32) and the shape of one item, -1 for variable sizes."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """One model to serve. `file` is copied to `1/<file_name>`, or what `make_file` returns is written there; `is_batched` turns
    the dynamic batcher on, `is_decoupled` lets it answer a request with any number of responses, `is_cached` has its answers
    kept, `more_config` is added to its configuration. With `step` it is an ensemble that runs that model, from its first input
    to its first output, `step_count` times one after the other.
    """

    name: str
    backend: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = 0
    instance_count: int = 1
    is_batched: bool = False
    is_decoupled: bool = False
    is_cached: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    file_name: str = ""
    make_file: Callable[[], bytes] | None = None
    more_config: str = ""
    step: Model | None = None
    step_count: int = 0


def write_repository(root: Path, models: tuple[Model, ...]) -> Path:
    """Write `models` below the folder `root`, which is made anew, and return it."""
    shutil.rmtree(root, ignore_errors=True)
    for model in (*models, *(model.step for model in models if model.step is not None)):
        version = root / model.name / "1"
        version.mkdir(parents=True)
        (root / model.name / "config.pbtxt").write_text(config_text(model))
        if model.file is not None:
            shutil.copyfile(model.file, version / model.file_name)
        if model.make_file is not None:
            (version / model.file_name).write_bytes(model.make_file())
    return root


def config_text(model: Model) -> str:
    """Return the config.pbtxt of one model."""
    kind = 'platform: "ensemble"' if model.step is not None else f'backend: "{model.backend}"'
    lines = [f'name: "{model.name}"', kind, f"max_batch_size: {model.max_batch_size}"]
    lines += [f"input {_tensor_text(tensor)}" for tensor in model.inputs]
    lines += [f"output {_tensor_text(tensor)}" for tensor in model.outputs]
    if model.step is not None:
        return "\n".join([*lines, *_step_lines(model, model.step)]) + "\n"
    lines += [f"instance_group {{ count: {model.instance_count} kind: KIND_CPU }}"]
    lines += ["dynamic_batching { }"] if model.is_batched else []
    lines += ["model_transaction_policy { decoupled: true }"] if model.is_decoupled else []
    lines += ["response_cache { enable: true }"] if model.is_cached else []
    lines += [f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}' for key, text in model.parameters.items()]
    lines += [model.more_config] if model.more_config else []
    return "\n".join(lines) + "\n"


def _step_lines(model: Model, step: Model) -> Iterator[str]:
    between = (f"between{number}" for number in range(1, model.step_count))
    tensors = [model.inputs[0].name, *between, model.outputs[0].name]
    yield "ensemble_scheduling {"
    for before, after in pairwise(tensors):
        reads = f'input_map {{ key: "{step.inputs[0].name}" value: "{before}" }}'
        writes = f'output_map {{ key: "{step.outputs[0].name}" value: "{after}" }}'
        yield f'step {{ model_name: "{step.name}" model_version: -1 {reads} {writes} }}'
    yield "}"


def _tensor_text(tensor: Tensor) -> str:
    dims = ", ".join(str(size) for size in tensor.dims)
    return f'{{ name: "{tensor.name}" data_type: {tensor.data_type} dims: [ {dims} ] }}'
