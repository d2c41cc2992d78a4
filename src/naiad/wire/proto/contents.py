"""InferTensorContents: elements that a client sent as typed protobuf fields.

Owns which field belongs to which datatype. FP16 and BF16 have none: they come in raw form only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.errors import invalid_argument
from naiad.proto import Message
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BY_NAME

_FIELD_OF = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_DATATYPES_OF = {
    "bool_contents": "BOOL",
    "int_contents": "INT8, INT16 or INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT8, UINT16 or UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": "BYTES",
}
# A varint's bytes but the last have this bit.
_MORE = 0x80
# What a field's numbers are in protobuf; narrower datatypes keep the low bytes, as the protocol says.
_NUMPY_OF = {
    "bool_contents": np.dtype(np.bool_),
    "int_contents": np.dtype(np.int32),
    "int64_contents": np.dtype(np.int64),
    "uint_contents": np.dtype(np.uint32),
    "uint64_contents": np.dtype(np.uint64),
    "fp32_contents": np.dtype("<f4"),
    "fp64_contents": np.dtype("<f8"),
}


def read_contents(contents: Message, name: str, datatype_name: str, model_name: str) -> np.ndarray[Any, Any]:
    """Return the elements as a flat array in the numpy dtype of the datatype.

    Raises INVALID_ARGUMENT for an unknown datatype, for a field of another datatype and for several fields.
    """
    datatype = BY_NAME.get(datatype_name)
    if datatype is None:
        raise invalid_argument(f"invalid datatype for input {name}: '{datatype_name}' is none of {', '.join(BY_NAME)}")
    wanted = _FIELD_OF.get(datatype_name, "")
    for field, _ in contents.ListFields():
        if field.name != wanted:
            raise invalid_argument(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}' of type "
                f"'{_DATATYPES_OF[field.name]}', expected datatype '{datatype_name}'"
                + ("" if wanted else ", which is sent in raw_input_contents only")
            )
    if not wanted:
        return np.empty(0, datatype.numpy)
    if wanted == "bytes_contents":
        return bytes_tensor.as_array(list(contents.bytes_contents), (len(contents.bytes_contents),))
    return _numbers(contents, wanted, _NUMPY_OF[wanted]).astype(datatype.numpy, copy=False)


def _numbers(contents: Message, field: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers of the one field that is set, in `dtype`.

    Where they lie packed with equal widths they are taken from the message's bytes: fetching them one by one holds the event
    loop for 40 to 80 ms a million.
    """
    contents.DiscardUnknownFields()
    data: bytes = contents.SerializeToString()
    if not data:
        return np.empty(0, dtype)
    # One byte of tag, then the length as a varint, then the numbers.
    start = 2
    while data[start - 1] >= _MORE:
        start += 1
    if dtype.kind == "f":
        return np.frombuffer(data, dtype, offset=start)
    varints = np.frombuffer(data, np.uint8, offset=start)
    if varints.max() < _MORE:
        return varints.astype(dtype)
    values = getattr(contents, field)
    return np.fromiter(values, dtype, len(values))
