"""Infer bodies as a whole: round trips, a slow reference decoder, and bodies spoilt at random."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from naiad.errors import Code, InferenceServerError
from naiad.request.call import InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BF16, BY_NAME, FP16, Datatype
from naiad.wire.kserve_request import decode_infer
from naiad.wire.kserve_response import encode_infer
from naiad.wire.limits import RequestLimits

LIMITS = RequestLimits(1 << 20)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@dataclass
class Tensor:
    name: str
    datatype: Datatype
    array: np.ndarray[Any, Any]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(list(BY_NAME.values())))
    shape = draw(SHAPES)
    if datatype.size_bytes:
        array = draw(arrays.arrays(datatype.numpy, shape))
    else:
        count = int(np.prod(shape))
        array = bytes_tensor.as_array(
            [text.encode() for text in draw(st.lists(st.text(st.characters(codec="utf-8")), min_size=count, max_size=count))],
            shape,
        )
    return Tensor(draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)), datatype, array)


def reference_tail(tensor: Tensor) -> bytes:
    if tensor.datatype.size_bytes:
        return tensor.array.tobytes()
    return b"".join(struct.pack("<I", len(element)) + element for element in tensor.array.ravel())


def reference_read(item: dict[str, Any], tail: bytes) -> tuple[np.ndarray[Any, Any], bytes]:
    """Read one input or output in the slowest, most obvious way; return its array and the rest of the tail."""
    datatype = BY_NAME[item["datatype"]]
    if "data" in item:
        elements = [text.encode() for text in item["data"]] if datatype.name == "BYTES" else item["data"]
        if not datatype.size_bytes:
            return bytes_tensor.as_array(elements, tuple(item["shape"])), tail
        return np.array(elements, datatype.numpy).reshape(item["shape"]), tail
    size = item["parameters"]["binary_data_size"]
    blob, rest = tail[:size], tail[size:]
    assert len(blob) == size
    if datatype.size_bytes:
        return np.frombuffer(blob, datatype.numpy).reshape(item["shape"]), rest
    elements = []
    while blob:
        (length,) = struct.unpack("<I", blob[:4])
        elements.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return bytes_tensor.as_array(elements, tuple(item["shape"])), rest


def request_body(items: list[Tensor], binary: list[bool]) -> tuple[bytes, int]:
    inputs, tail = [], b""
    for tensor, is_binary in zip(items, binary):
        entry = {"name": tensor.name, "datatype": tensor.datatype.name, "shape": list(tensor.array.shape)}
        if is_binary or tensor.datatype in (FP16, BF16):
            blob = reference_tail(tensor)
            entry["parameters"] = {"binary_data_size": len(blob)}
            tail += blob
        else:
            flat = tensor.array.ravel().tolist()
            entry["data"] = [value.decode() for value in flat] if not tensor.datatype.size_bytes else flat
        inputs.append(entry)
    text = json.dumps({"id": "é", "inputs": inputs}).encode()
    return text + tail, len(text)


@given(st.lists(st.tuples(tensors(), st.booleans()), max_size=4))
def test_inputs_come_back_bit_for_bit_in_either_form(drawn: list[tuple[Tensor, bool]]) -> None:
    items = [tensor for tensor, _ in drawn]
    body, length = request_body(items, [is_binary for _, is_binary in drawn])
    call = decode_infer(body, length, "m", "", LIMITS)
    assert [(item.name, item.datatype, item.shape) for item in call.inputs] == [
        (tensor.name, tensor.datatype.name, list(tensor.array.shape)) for tensor in items
    ]
    for item, tensor in zip(call.inputs, items):
        if item.buffer is not None:
            assert bytes(item.buffer) == reference_tail(tensor)
        else:
            assert item.array is not None
            np.testing.assert_array_equal(item.array, tensor.array.ravel())


@given(st.lists(tensors(), max_size=4), st.booleans())
def test_outputs_come_back_bit_for_bit_in_either_form(items: list[Tensor], is_binary: bool) -> None:
    items = [item for item in items if is_binary or item.datatype not in (FP16, BF16)]
    response = InferResponse("m", "1", "", [OutputTensor(item.name, item.datatype, item.array) for item in items])
    encoded = encode_infer(response, InferCall("m", binary_output=is_binary))
    body = b"".join(map(bytes, encoded.buffers))
    length = len(body) if encoded.header_length is None else encoded.header_length
    tail = body[length:]
    for item, output in zip(items, json.loads(body[:length])["outputs"], strict=True):
        array, tail = reference_read(output, tail)
        assert array.shape == item.array.shape
        np.testing.assert_array_equal(array, item.array)
    assert tail == b""


VALID, VALID_LENGTH = request_body(
    [
        Tensor("X", BY_NAME["FP32"], np.ones((2, 2), np.float32)),
        Tensor("S", BY_NAME["BYTES"], bytes_tensor.as_array([b"ab", b""], (2,))),
        Tensor("J", BY_NAME["INT32"], np.ones((3,), np.int32)),
    ],
    [True, True, False],
)


def check_answered(body: bytes, length: int | None) -> None:
    code = Code.INVALID_ARGUMENT
    try:
        assert isinstance(decode_infer(body, length, "m", "", LIMITS), InferCall)
    except InferenceServerError as error:
        code = error.code
    assert code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=3), st.integers(0, 3), st.integers(-2, len(VALID) + 2) | st.none())
def test_body_spoilt_anywhere_gives_a_call_or_a_clients_error(at: int, put: bytes, drop: int, length: int | None) -> None:
    body = VALID[:at] + put + VALID[at + drop :]
    check_answered(body, VALID_LENGTH + len(put) - drop if length is None else length)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = ["id", "parameters", "inputs", "outputs"]
PATHS: list[list[Any]] = [
    *[[member] for member in MEMBERS],
    *[["inputs", 0, member] for member in ("name", "shape", "datatype", "parameters", "data")],
    *[["inputs", 0, "parameters", key] for key in ("binary_data_size", "shared_memory_region", "shared_memory_offset")],
    ["inputs", 0],
    ["inputs", 0, "shape", 0],
    ["inputs", 2, "data", 1],
    *[["outputs", 0, member] for member in ("name", "parameters")],
    *[["outputs", 0, "parameters", key] for key in ("binary_data", "classification", "shared_memory_region")],
    *[["parameters", key] for key in ("sequence_id", "sequence_start", "priority", "timeout", "binary_data_output", "x")],
]


@given(st.sampled_from(PATHS), JSON_VALUES)
def test_any_value_of_any_member_gives_a_call_or_a_clients_error(path: list[Any], value: Any) -> None:
    document = json.loads(VALID[:VALID_LENGTH])
    document |= {"parameters": {"priority": 1}, "outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    text = json.dumps(document).encode()
    check_answered(text + VALID[VALID_LENGTH:], len(text))


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(wrap: Any) -> None:
    assert len(decode_infer(wrap(VALID), VALID_LENGTH, "m", "", LIMITS).inputs) == 3
