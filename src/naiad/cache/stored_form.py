"""The bytes in which a response is kept outside of this process: a JSON head behind its length, then the tensors.

Owns the form. What it reads may be anything: whatever isn't a response in this form is none.
"""

from __future__ import annotations

import numpy as np
import orjson

from naiad.cache.base import CachedResponse, CachedTensor, response_of
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BY_NAME

_HEAD_BYTES = 4


def encode(response: CachedResponse) -> bytes:
    """Return `response` as bytes."""
    parts = [
        bytes_tensor.encode(tensor.array.flat) if tensor.array.dtype.hasobject else tensor.array.tobytes()
        for tensor in response.tensors
    ]
    tensors = [
        [tensor.name, tensor.datatype.name, list(tensor.array.shape), len(part)]
        for tensor, part in zip(response.tensors, parts)
    ]
    head = orjson.dumps({"tensors": tensors, "parameters": dict(response.parameters)})
    return b"".join([len(head).to_bytes(_HEAD_BYTES, "little"), head, *parts])


def decode(data: bytes) -> CachedResponse | None:
    """Return the response that `data` holds, None when it holds none."""
    try:
        start = _HEAD_BYTES + int.from_bytes(data[:_HEAD_BYTES], "little")
        head = orjson.loads(data[_HEAD_BYTES:start])
        tensors = []
        for name, datatype_name, shape, size_bytes in head["tensors"]:
            datatype, part = BY_NAME[datatype_name], memoryview(data)[start : start + size_bytes]
            start += size_bytes
            if datatype.size_bytes:
                array = np.frombuffer(part, datatype.numpy).reshape(shape)
            else:
                count = int(np.prod(shape, dtype=np.int64))
                array = bytes_tensor.as_array(bytes_tensor.decode(part, count), tuple(shape))
                array.setflags(write=False)
            tensors.append(CachedTensor(name, datatype, array))
        return response_of(tensors, head["parameters"]) if start == len(data) else None
    except (ValueError, KeyError, TypeError):
        return None
