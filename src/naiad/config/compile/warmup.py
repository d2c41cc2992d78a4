"""Make the samples that a model runs before it serves, and read their files.

A file holds one item of the input as it goes over the wire: little-endian elements, row by row; each string behind its length
as four bytes, little-endian. What a file of numbers holds beyond the item is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from naiad.config import schema
from naiad.config.plan import TensorPlan, WarmupSample
from naiad.errors import invalid_argument
from naiad.proto import Message
from naiad.tensor import bytes_tensor
from naiad.tensor import shape as shapes
from naiad.tensor.datatype import BF16, Datatype

Array = np.ndarray[Any, Any]

FOLDER = "warmup"
MOST_BYTES = 1 << 30
"""The samples of a model stay in memory, for instances that are added later: a slip in `dims` must not fill it."""

_SHOWN_BYTES = 16


def warmup_samples(config: Message, tensors: Mapping[str, TensorPlan], directory: Path) -> tuple[WarmupSample, ...]:
    """Return the samples to run; one with batch_size 0 is left out, as Triton does. `tensors` are the inputs of the backend.

    Raises INVALID_ARGUMENT that names the sample, the input and what is allowed.
    """
    left_bytes = MOST_BYTES
    samples = []
    for sample in config.model_warmup:
        if not sample.batch_size:
            continue
        where = f"model_warmup sample '{sample.name}' of model '{config.name}'"
        most = max(1, config.max_batch_size)
        if sample.batch_size > most:
            raise invalid_argument(f"{where} has batch_size {sample.batch_size}, must be from 1 to {most}")
        inputs = {}
        for name, item in sorted(sample.inputs.items()):
            tensor = _tensor(tensors, name, where)
            shape = _shape(item, tensor, where)
            left_bytes -= prod(shape) * max(tensor.datatype.size_bytes, 8)
            if left_bytes < 0:
                raise invalid_argument(f"{where}: the samples take more than {MOST_BYTES} bytes with input '{name}' {shape}")
            array = _array(item, tensor.datatype, shape, f"{where}, input '{name}'", directory)
            inputs[name] = array.reshape((1, *shape) if config.max_batch_size else shape)
        missing = [item.name for item in config.input if not item.optional and item.name not in inputs]
        if missing:
            raise invalid_argument(f"{where} has no data for input '{missing[0]}'")
        samples.append(WarmupSample(sample.name, sample.batch_size, sample.count or 1, inputs))
    return tuple(samples)


def _tensor(tensors: Mapping[str, TensorPlan], name: str, where: str) -> TensorPlan:
    tensor = tensors.get(name)
    if tensor is None:
        raise invalid_argument(f"{where} names input '{name}', which isn't there; the inputs are: {', '.join(tensors)}")
    return tensor


def _shape(item: Message, tensor: TensorPlan, where: str) -> tuple[int, ...]:
    data_type = schema.enum_name(item, "data_type")
    if data_type != tensor.datatype.config_name:
        raise invalid_argument(
            f"{where}: input '{tensor.name}' has data_type {data_type}, the model's is {tensor.datatype.config_name}"
        )
    shape = tuple(item.dims)
    if any(size < 0 for size in shape) or not shapes.matches(list(shape), tensor.dims):
        raise invalid_argument(
            f"{where}: input '{tensor.name}' has dims {list(shape)}, must be fixed sizes of one item that fit the model's "
            f"{list(tensor.dims)}"
        )
    return shape


def _array(item: Message, datatype: Datatype, shape: tuple[int, ...], where: str, directory: Path) -> Array:
    choice = item.WhichOneof("input_data_type")
    if choice == "input_data_file":
        return _from_file(item.input_data_file, datatype, prod(shape), where, directory)
    if choice is None:
        raise invalid_argument(f"{where} must have one of zero_data, random_data and input_data_file")
    if not datatype.size_bytes:
        return bytes_tensor.as_array([b""] * prod(shape), (prod(shape),))
    return np.zeros(prod(shape), datatype.numpy) if choice == "zero_data" else _random(datatype, prod(shape))


def _random(datatype: Datatype, count: int) -> Array:
    """Return elements that any model can take: numbers from 0 to 1, whole ones from 0 to 100, false and true."""
    source = np.random.default_rng()
    if datatype is BF16:
        return (source.random(count, np.float32).view(np.uint32) >> 16).astype(datatype.numpy)
    if datatype.numpy.kind == "f":
        return source.random(count, np.float32).astype(datatype.numpy)
    return source.integers(0, 2 if datatype.numpy.kind == "b" else 101, count).astype(datatype.numpy)


def _from_file(file_name: str, datatype: Datatype, count: int, where: str, directory: Path) -> Array:
    path = PurePosixPath(file_name)
    if path.is_absolute() or ".." in path.parts or "\0" in file_name or not path.parts:
        raise invalid_argument(
            f"{where}: input_data_file '{file_name}' must be a path inside {directory / FOLDER}, without '..'"
        )
    wanted = count * datatype.size_bytes if datatype.size_bytes else MOST_BYTES
    try:
        with (directory / FOLDER / path).open("rb") as file:
            data = file.read(wanted)
    except OSError as error:
        raise invalid_argument(f"{where}: {directory / FOLDER / path} can't be read: {error.strerror}") from error
    if not datatype.size_bytes:
        return _strings(data, count, f"{where}: {directory / FOLDER / path}")
    if len(data) < wanted:
        raise invalid_argument(
            f"{where}: {directory / FOLDER / path} has {len(data)} bytes, must have {wanted}: {count} elements of "
            f"{datatype.name}, little-endian"
        )
    return np.frombuffer(data, datatype.numpy)


def _strings(data: bytes, count: int, where: str) -> Array:
    try:
        elements = bytes_tensor.decode(data, count)
        problem = "" if len(elements) >= count else f"it has {len(elements)} elements"
        if len(elements) > count:
            problem = f"it has more than {count} elements"
    except ValueError as error:
        elements, problem = [], str(error)
    if problem:
        raise invalid_argument(
            f"{where} must hold {count} strings, each behind its length as 4 bytes, little-endian, and nothing else: "
            f"{problem}; it has {len(data)} bytes and begins with {data[:_SHOWN_BYTES]!r}"
        )
    return bytes_tensor.as_array(elements, (count,))


def skipped_samples(config: Message) -> Iterator[str]:
    """Yield the names of the samples that aren't run since their batch_size is 0."""
    for sample in config.model_warmup:
        if not sample.batch_size:
            yield sample.name
