"""The first value of a state that the sequence batcher keeps: zeros, or the content of a file.

Owns the reading of `<model>/initial_state/<file>`: the elements in the binary form of tensors, row-major and little-endian;
texts each with a length of four bytes before it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from naiad.config.plan import TensorPlan
from naiad.errors import invalid_argument
from naiad.proto import Message
from naiad.tensor import bytes_tensor
from naiad.tensor.shape import element_count

FOLDER = "initial_state"


def initial_state(state: Message, tensor: TensorPlan, directory: Path, *, is_batching: bool) -> np.ndarray[Any, Any]:
    """Return the array for a sequence's first request, with a batch dimension of 1 when the model batches.

    Without an `initial_state` it is zeros (empty texts) of the state's dims, variable ones taken as 1. Raises INVALID_ARGUMENT
    for a file that is elsewhere, missing, unreadable or too short.
    """
    chosen = state.initial_state[0] if state.initial_state else None
    dims = tuple(chosen.dims) if chosen is not None else tuple(1 if dim < 0 else dim for dim in tensor.dims)
    shape = (1, *dims) if is_batching else dims
    if chosen is not None and chosen.WhichOneof("state_data") == "data_file":
        return _from_file(directory, chosen, tensor, shape)
    zeros = np.zeros(shape, tensor.datatype.numpy)
    if tensor.datatype.numpy.hasobject:
        zeros[...] = b""
    return zeros


def _from_file(directory: Path, chosen: Message, tensor: TensorPlan, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    name = chosen.data_file
    where = f"data_file '{name}' of initial_state '{chosen.name}'"
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise invalid_argument(f"{where} must be a path inside {directory / FOLDER}, without '..'")
    try:
        data = (directory / FOLDER / path).read_bytes()
    except OSError as error:
        raise invalid_argument(f"{where} can't be read: {directory / FOLDER / path}: {error.strerror}") from error
    count = element_count(shape)
    if tensor.datatype.numpy.hasobject:
        return _texts(where, data, count, shape)
    size = count * tensor.datatype.size_bytes
    if len(data) < size:
        raise invalid_argument(
            f"{where} is too short: {len(data)} bytes, {count} elements of {tensor.datatype.config_name} take {size}"
        )
    return np.frombuffer(data, tensor.datatype.numpy, count).reshape(shape)


def _texts(where: str, data: bytes, count: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    try:
        elements = bytes_tensor.decode(data, count)
    except ValueError as error:
        raise invalid_argument(f"{where}: {error}") from error
    if len(elements) != count:
        raise invalid_argument(f"{where} holds {len(elements)} texts, must hold {count}")
    return bytes_tensor.as_array(elements, shape)
