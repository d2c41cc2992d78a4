"""A response as bytes says the same when it is read again, and bytes that are no response are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.cache.base import copy_of
from naiad.cache.stored_form import decode, encode
from naiad.request.response import OutputTensor
from naiad.tensor.datatype import BF16, BOOL, BYTES, FP32, INT64


def strings(*elements: bytes) -> np.ndarray:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


OUTPUTS = [
    OutputTensor("a", FP32, np.arange(6, dtype=np.float32).reshape(2, 3)),
    OutputTensor("b", BYTES, strings(b"", b"\xff\0", "it\u2019s".encode()).reshape(3, 1)),
    OutputTensor("c", BF16, np.arange(3, dtype=np.uint16)),
    OutputTensor("d", BOOL, np.array([True, False])),
    OutputTensor("e", INT64, np.zeros((0, 4), np.int64)),
    OutputTensor("f", FP32, np.float32(7).reshape(())),
]
PARAMETERS = {"i": 1, "f": 1.5, "b": True, "s": "x"}


def test_what_is_read_is_what_was_written():
    response = copy_of(OUTPUTS, PARAMETERS)
    read = decode(encode(response))
    assert (read.parameters, read.size_bytes) == (PARAMETERS, response.size_bytes)
    assert [type(value) for value in read.parameters.values()] == [int, float, bool, str]
    for output, wanted in zip(read.outputs(), OUTPUTS, strict=True):
        assert (output.name, output.datatype) == (wanted.name, wanted.datatype)
        assert (output.array.shape, output.array.tolist()) == (wanted.array.shape, wanted.array.tolist())


@pytest.mark.parametrize("cut", [0, 1, 4, 30, -1])
def test_a_part_of_a_response_is_none(cut):
    assert decode(encode(copy_of(OUTPUTS, {}))[:cut]) is None


@given(st.binary(max_size=200))
def test_other_bytes_are_none(data):
    assert decode(data) is None


@pytest.mark.parametrize("head", [b"[]", b"null", b'{"tensors": 1}', b'{"tensors": [["a", "FP99", [1], 4]], "parameters": {}}'])
def test_other_json_is_none(head):
    assert decode(len(head).to_bytes(4, "little") + head + b"1234") is None
