"""The model configuration of a served function.

Owns the step from a declaration to a ModelConfig, which is completed and checked like one that was read from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from naiad.proto import Message, message_class
from naiad.server.embedded.declaration import Declaration, Tensor

BACKEND = "function"
TARGET_PARAMETER = "function"
"""The parameter that names the function, as module:function, of a model that runs in worker processes."""


def model_config(name: str, declaration: Declaration, instance_count: int) -> Message:
    """Return the ModelConfig of a function that is called by `instance_count` threads at a time."""
    config = message_class("inference.ModelConfig")(name=name, backend=BACKEND)
    batching = declaration.batching
    if batching is not None:
        config.max_batch_size = batching.max_batch_size
        config.dynamic_batching.max_queue_delay_microseconds = batching.max_queue_delay_us
        config.dynamic_batching.preferred_batch_size.extend(batching.preferred_batch_sizes)
    _add(config.input, declaration.inputs, is_batching=batching is not None)
    _add(config.output, declaration.outputs, is_batching=batching is not None)
    group = config.instance_group.add(count=instance_count)
    group.kind = group.KIND_CPU
    return config


def _add(target: Any, tensors: Sequence[Tensor], is_batching: bool) -> None:
    for tensor in tensors:
        added = target.add(name=tensor.name)
        data_types = added.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name
        added.data_type = data_types[tensor.datatype.config_name].number
        added.dims.extend(tensor.shape or (1,))
        if tensor.is_optional:
            added.optional = True
        if not tensor.shape and is_batching:
            # Dims can't be empty: clients see one value an item, the function no dimension for it.
            added.reshape.SetInParent()
