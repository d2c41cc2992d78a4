"""The classification extension: a tensor as its k highest values, each with its index and label.

Owns ranking and the text of an entry. Where labels come from is the model's concern.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from naiad.errors import InferenceServerError, invalid_argument
from naiad.request.response import OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64

Array = np.ndarray[Any, Any]

MAX_ELEMENTS = 1_000_000

_FLOATS = (FP32.name, FP64.name)
_INTEGERS = tuple(datatype.name for datatype in (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64))


def classify(output: OutputTensor, labels: Sequence[str], count: int, is_batching: bool) -> Array:
    """Return the `count` >= 1 highest values of `output` as a BYTES array of `<value>:<index>[:<label>]`.

    Its shape is [k], or [batch, k] when the model batches, with k at most the number of elements of an item; those are taken
    flat in row-major order. The highest value is first, of equal ones the one with the lower index, NaN last. Floats have six
    decimals. An index without a label (or with an empty one) has no second colon. Raises INVALID_ARGUMENT for a datatype
    without an order, for no elements, and for more than 1,000,000 of them in an item.
    """
    name = output.datatype.name
    if name not in _FLOATS and name not in _INTEGERS:
        raise _refused(output, f"class result not available for output due to unsupported type {name}")
    shape = output.array.shape
    batch_size = shape[0] if is_batching and shape else 1
    size = prod(shape[1:] if is_batching else shape)
    if not batch_size or not size:
        raise _refused(output, f"class result not available for output without elements, its shape is {list(shape)}")
    if size > MAX_ELEMENTS:
        raise _refused(output, f"class result not available for {size} elements, at most {MAX_ELEMENTS} are allowed")
    layout = "%f:%d" if name in _FLOATS else "%d:%d"
    items = np.ascontiguousarray(output.array).reshape(batch_size, size)
    count = min(count, size)
    entries = [entry for item in items for entry in _entries(item, count, layout, labels)]
    return bytes_tensor.as_array(entries, (batch_size, count) if is_batching else (count,))


def _entries(item: Array, count: int, layout: str, labels: Sequence[str]) -> list[bytes]:
    indices = _highest(item, count)
    entries = []
    for value, index in zip(item[indices].tolist(), indices.tolist()):
        text = layout % (value, index)
        label = labels[index] if index < len(labels) else ""
        entries.append((f"{text}:{label}" if label else text).encode())
    return entries


def _highest(item: Array, count: int) -> Array:
    """Return the indices of the `count` highest values in their order."""
    # Turns the order round without overflow: ~x is -x-1. numpy sorts NaN to the end.
    keys: Array = -item if item.dtype.kind == "f" else ~item
    if count < item.size:
        bound = np.partition(keys, count - 1)[count - 1]
        candidates = np.flatnonzero(keys <= bound)
        # Not so when the bound is NaN: then all values have to be sorted.
        if candidates.size >= count:
            return candidates[np.argsort(keys[candidates], kind="stable")[:count]]
    return np.argsort(keys, kind="stable")[:count]


def _refused(output: OutputTensor, text: str) -> InferenceServerError:
    return invalid_argument(f"{text} (output '{output.name}')")
