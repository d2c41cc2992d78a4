"""What is wrong with a configuration's inputs and outputs: name, data type, dims, reshape, format.

Products are exact: Python integers have no width, so no dims can overflow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding
from naiad.proto import Message
from naiad.tensor import shape
from naiad.tensor.shape import VARIABLE

_TENSORRT_PLATFORM = "tensorrt_plan"


def tensor_findings(config: Message) -> Iterator[Finding]:
    """Yield a mistake at a time."""
    for kind, tensors in (("input", config.input), ("output", config.output)):
        seen: set[str] = set()
        for index, tensor in enumerate(tensors):
            path: FieldPath = (kind, index)
            if not tensor.name:
                yield Finding(f"model {kind} must specify 'name' for {config.name}", path)
                continue
            if tensor.name in seen:
                yield Finding(f"model {kind} '{tensor.name}' is given twice for {config.name}", (*path, "name"))
            seen.add(tensor.name)
            for field, texts in _by_field(config, kind, tensor):
                for text in texts:
                    yield Finding(f"model {kind} '{tensor.name}' {text} for {config.name}", (*path, field))


def _by_field(config: Message, kind: str, tensor: Message) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield what is wrong with one tensor, without its name, by the field to look at."""
    yield "data_type", _type_texts(tensor)
    yield "reshape" if tensor.HasField("reshape") else "dims", _dims_texts(config, tensor)
    yield "is_shape_tensor", _tensorrt_texts(config, tensor)
    if kind == "input":
        yield "format", _format_texts(tensor)


def _type_texts(tensor: Message) -> Iterator[str]:
    if tensor.data_type == 0:
        yield "must specify 'data_type'"


def _format_texts(tensor: Message) -> Iterator[str]:
    if tensor.format != tensor.FORMAT_NONE and len(tensor.dims) != 3:
        name = schema.enum_name(tensor, "format")
        yield f"has format {name}, which needs 3 dims, got {shape.text(tensor.dims)}"


def _dims_texts(config: Message, tensor: Message) -> Iterator[str]:
    if not tensor.dims:
        yield "must specify 'dims'"
        return
    wrong = [text for text in (_wrong_dim("dims", tensor.dims), _wrong_dim("reshape", tensor.reshape.shape)) if text]
    yield from wrong
    if tensor.HasField("reshape") and not wrong:
        yield from _reshape_texts(config, tensor)


def _wrong_dim(field: str, dims: Sequence[int]) -> str | None:
    if all(dim >= 1 or dim == VARIABLE for dim in dims):
        return None
    return f"has {field} {shape.text(dims)}: dimension must be integer >= 1, or -1 to indicate a variable-size dimension"


def _reshape_texts(config: Message, tensor: Message) -> Iterator[str]:
    """Yield whether `dims` and `reshape` can't hold the same elements: segments between variable dims must agree."""
    dims, reshape = list(tensor.dims), list(tensor.reshape.shape)
    both = f"dims {shape.text(dims)}, reshape {shape.text(reshape)}"
    if not reshape and config.max_batch_size == 0:
        yield ("cannot have empty reshape for non-batching model as scalar tensors are not supported")
    elif dims.count(VARIABLE) != reshape.count(VARIABLE):
        yield f"has different number of variable-size dimensions for dims and reshape: {both}"
    elif _segments(dims) != _segments(reshape):
        yield f"has different size for dims and reshape: {both}"


def _segments(dims: Sequence[int]) -> list[int]:
    """Return the element counts before, between and after the variable dims."""
    stops = [-1, *(index for index, dim in enumerate(dims) if dim == VARIABLE), len(dims)]
    return [prod(dims[start + 1 : stop]) for start, stop in pairwise(stops)]


def _tensorrt_texts(config: Message, tensor: Message) -> Iterator[str]:
    for field in ("is_shape_tensor", "is_non_linear_format_io"):
        if getattr(tensor, field) and config.platform != _TENSORRT_PLATFORM:
            yield f"sets {field}, which only platform {_TENSORRT_PLATFORM} has, got '{config.platform}'"
    if tensor.is_non_linear_format_io and len(tensor.dims) != 3:
        yield f"sets is_non_linear_format_io, which needs 3 dims, got {shape.text(tensor.dims)}"
