"""Make the plans of a model's inputs and outputs: datatypes by object, shapes with the batch dimension."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from naiad.config import schema
from naiad.config.compile.labels import read_labels
from naiad.config.findings import about
from naiad.config.plan import TensorPlan
from naiad.proto import Message
from naiad.tensor.datatype import BY_CONFIG_NAME
from naiad.tensor.shape import VARIABLE


def input_plans(config: Message) -> tuple[TensorPlan, ...]:
    """Return the plans of the inputs, in the config's order."""
    return tuple(
        replace(
            _plan(tensor, config.max_batch_size),
            is_optional=tensor.optional,
            allow_ragged_batch=tensor.allow_ragged_batch,
        )
        for tensor in config.input
    )


def output_plans(config: Message, directory: Path) -> tuple[TensorPlan, ...]:
    """Return the plans of the outputs, in the config's order; labels are read from the model's folder `directory`."""
    return tuple(
        replace(
            _plan(tensor, config.max_batch_size),
            labels=_labels(tensor, index, directory),
        )
        for index, tensor in enumerate(config.output)
    )


def tensor_plan(name: str, config_type: str, dims: tuple[int, ...], max_batch_size: int) -> TensorPlan:
    """Return the plan of a tensor without a reshape; `config_type` is a name like TYPE_FP32."""
    shape = (VARIABLE, *dims) if max_batch_size > 0 else dims
    return TensorPlan(name, BY_CONFIG_NAME[config_type], dims, shape, shape)


def _labels(tensor: Message, index: int, directory: Path) -> tuple[str, ...]:
    if not tensor.label_filename:
        return ()
    with about(("output", index, "label_filename")):
        return read_labels(directory, tensor.label_filename, tensor.name)


def _plan(tensor: Message, max_batch_size: int) -> TensorPlan:
    """Return what inputs and outputs have in common. A reshape to the same dims is none: nothing has to be done for it."""
    dims = tuple(tensor.dims)
    plan = tensor_plan(tensor.name, schema.enum_name(tensor, "data_type"), dims, max_batch_size)
    backend_dims = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else dims
    if backend_dims == dims:
        return plan
    batch = (VARIABLE,) if max_batch_size > 0 else ()
    return replace(plan, backend_shape=(*batch, *backend_dims), has_reshape=True)
