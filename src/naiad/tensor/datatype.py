"""The tensor datatypes of the KServe v2 protocol and of ModelConfig, and the numpy dtype that holds each.

Owns names and sizes. BF16 is kept as the 16 bits of each value in `uint16`; those who compute with it (codecs, backends)
turn it into ml_dtypes' `bfloat16`. BYTES is an object array whose elements are `bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Datatype:
    """One datatype.

    `name` is the protocol's (FP32), `config_name` ModelConfig's (TYPE_FP32), `size_bytes` that of one element (0 for BYTES,
    whose elements vary), `numpy` the little-endian dtype that holds it.
    """

    name: str
    config_name: str
    size_bytes: int
    numpy: np.dtype[np.generic]

    def __repr__(self) -> str:
        return self.name


def _datatype(name: str, numpy: str, config_name: str | None = None) -> Datatype:
    dtype: np.dtype[np.generic] = np.dtype(numpy)
    return Datatype(name, config_name or f"TYPE_{name}", 0 if dtype.hasobject else dtype.itemsize, dtype)


BOOL = _datatype("BOOL", "?")
UINT8 = _datatype("UINT8", "u1")
UINT16 = _datatype("UINT16", "<u2")
UINT32 = _datatype("UINT32", "<u4")
UINT64 = _datatype("UINT64", "<u8")
INT8 = _datatype("INT8", "i1")
INT16 = _datatype("INT16", "<i2")
INT32 = _datatype("INT32", "<i4")
INT64 = _datatype("INT64", "<i8")
FP16 = _datatype("FP16", "<f2")
FP32 = _datatype("FP32", "<f4")
FP64 = _datatype("FP64", "<f8")
BF16 = _datatype("BF16", "<u2")
BYTES = _datatype("BYTES", "O", "TYPE_STRING")

ALL = (BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16)
BY_NAME = {datatype.name: datatype for datatype in ALL}
BY_CONFIG_NAME = {datatype.config_name: datatype for datatype in ALL}
