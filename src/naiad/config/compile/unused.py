"""The fields of a configuration that this build reads, checks, shows and then doesn't act on: the operator is told of each.

Pinned memory (a hint without meaning on a CPU) and `format` (which only informs) aren't here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config import schema
from naiad.config.compile.batch_tensors import sees_requests_apart
from naiad.proto import Message

UNUSED_FIELDS = (
    "runtime",
    "cc_model_filenames",
    "optimization.graph",
    "optimization.priority",
    "optimization.cuda",
    "optimization.execution_accelerators",
    "optimization.gather_kernel_buffer_threshold",
    "optimization.eager_batching",
    "input.is_shape_tensor",
    "input.is_non_linear_format_io",
    "output.is_shape_tensor",
    "output.is_non_linear_format_io",
    "instance_group.profile",
    "instance_group.secondary_devices",
    "ensemble_scheduling.step.model_namespace",
    "model_operations",
    "model_metrics",
    "batch_input",
    "batch_output",
)
_USED_BY_ENGINES = frozenset({"batch_input", "batch_output"})
_USED_BY_ONNX = frozenset({"optimization.graph", "optimization.execution_accelerators"})


def unused_fields(config: Message) -> list[str]:
    """Return the paths of the fields that are set and have no effect yet, in the table's order."""
    return [path for path in UNUSED_FIELDS if _is_set(config, path.split(".")) and not _is_used_by_backend(config, path)]


def _is_used_by_backend(config: Message, path: str) -> bool:
    """Return whether the model's own backend acts on it: ONNX Runtime on how graphs run, Python-based ones on their runtime,
    engines that get a batch as one tensor on what tells them where each request lies.
    """
    if path in _USED_BY_ENGINES:
        return not sees_requests_apart(config)
    if path in _USED_BY_ONNX:
        return bool(config.backend == "onnxruntime")
    return bool(path == "runtime" and config.runtime == "model.py")


def _is_set(message: Message, names: list[str]) -> bool:
    """Return whether the field at the end of `names` is set in `message`, in any item of the lists on the way."""
    field = message.DESCRIPTOR.fields_by_name[names[0]]
    if len(names) == 1:
        return field in (listed for listed, _ in message.ListFields())
    return any(_is_set(item, names[1:]) for item in _items(message, field))


def _items(message: Message, field: Any) -> Iterator[Message]:
    value = getattr(message, field.name)
    yield from value if schema.is_repeated(field) else [value]
