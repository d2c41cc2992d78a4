"""Infer responses: members and their order, JSON or bytes, and the binary section."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from naiad.errors import Code, InferenceServerError
from naiad.request.call import CallOutput, InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BF16, BY_NAME, BYTES, FP16, FP32, INT32
from naiad.wire.kserve_response import encode_infer

Y = OutputTensor("Y", FP32, np.array([[1.5, 2.0]], np.float32))
NONE = OutputTensor("E", INT32, np.empty((0, 3), np.int32))


def respond(*outputs: OutputTensor, request_id: str = "", parameters: Mapping[str, Any] | None = None) -> InferResponse:
    return InferResponse("m", "1", request_id, list(outputs), parameters or {})


def asked(*outputs: CallOutput, binary: bool = False) -> InferCall:
    return InferCall("m", outputs=list(outputs), binary_output=binary)


def test_json_response_has_its_members_in_order() -> None:
    encoded = encode_infer(respond(Y, request_id="7", parameters={"p": 1}), asked())
    assert encoded.header_length is None
    (text,) = encoded.buffers
    assert text == (
        b'{"id":"7","model_name":"m","model_version":"1","parameters":{"p":1},'
        b'"outputs":[{"name":"Y","datatype":"FP32","shape":[1,2],"data":[1.5,2.0]}]}'
    )


def test_empty_id_and_parameters_are_left_out() -> None:
    (text,) = encode_infer(respond(), asked()).buffers
    assert text == b'{"model_name":"m","model_version":"1","outputs":[]}'


def test_binary_outputs_follow_the_json_part_in_order_without_a_copy() -> None:
    strings = OutputTensor("S", BYTES, np.array([[b"a"], [b""]], object))
    encoded = encode_infer(respond(Y, strings, NONE), asked(binary=True))
    text, *blobs = encoded.buffers
    outputs = json.loads(bytes(text))["outputs"]
    assert [output["parameters"] for output in outputs] == [
        {"binary_data_size": 8},
        {"binary_data_size": 9},
        {"binary_data_size": 0},
    ]
    assert all("data" not in output for output in outputs)
    assert [bytes(blob) for blob in blobs] == [Y.array.tobytes(), b"\x01\x00\x00\x00a\x00\x00\x00\x00"]
    assert encoded.header_length == len(text)
    assert np.shares_memory(np.frombuffer(blobs[0], np.uint8), Y.array)


def test_binary_outputs_without_bytes_make_a_json_response() -> None:
    encoded = encode_infer(respond(NONE), asked(binary=True))
    assert encoded.header_length is None
    assert json.loads(bytes(encoded.buffers[0]))["outputs"][0]["parameters"] == {"binary_data_size": 0}


def test_each_listed_output_has_its_own_form_and_the_last_entry_counts() -> None:
    other = OutputTensor("Z", INT32, np.array([3], np.int32))
    call = asked(CallOutput("Y", is_binary=True), CallOutput("Z", is_binary=True), CallOutput("Z"), binary=True)
    encoded = encode_infer(respond(Y, other), call)
    first, second = json.loads(bytes(encoded.buffers[0]))["outputs"]
    assert (first.get("parameters"), second.get("data")) == ({"binary_data_size": 8}, [3])
    assert len(encoded.buffers) == 2


@pytest.mark.parametrize("datatype", BY_NAME.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (1, 0)], ids=str)
def test_binary_form_is_the_tensors_memory_for_every_datatype(datatype: Any, shape: tuple[int, ...]) -> None:
    array = np.empty(shape, object) if datatype is BYTES else np.ones(shape, datatype.numpy)
    if datatype is BYTES:
        array.fill(b"x")
    encoded = encode_infer(respond(OutputTensor("Y", datatype, array)), asked(binary=True))
    expected = b"\x01\x00\x00\x00x" * math.prod(shape) if datatype is BYTES else array.tobytes()
    assert b"".join(map(bytes, encoded.buffers[1:])) == expected


def test_strided_output_is_sent_in_row_major_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    encoded = encode_infer(respond(OutputTensor("Y", INT32, array)), asked(binary=True))
    assert bytes(encoded.buffers[1]) == array.tobytes()


@pytest.mark.parametrize("datatype", [FP16, BF16], ids=str)
def test_half_floats_need_the_binary_form(datatype: Any) -> None:
    with pytest.raises(InferenceServerError, match=r"sending .* via JSON is not supported") as caught:
        encode_infer(respond(OutputTensor("Y", datatype, np.zeros(2, datatype.numpy))), asked())
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_non_finite_parameters_are_written_as_the_data_is() -> None:
    (text,) = encode_infer(respond(parameters={"a": math.nan, "b": math.inf, "c": -math.inf}), asked()).buffers
    assert b'"parameters":{"a":NaN,"b":Infinity,"c":-Infinity}' in bytes(text)


@pytest.mark.parametrize(
    ("value", "code"),
    [(b"x", Code.UNIMPLEMENTED), (2**70, Code.INTERNAL), ("\ud800", Code.INTERNAL), (object(), Code.INTERNAL)],
)
def test_parameter_that_json_cannot_hold_is_an_error(value: Any, code: Code) -> None:
    with pytest.raises(InferenceServerError) as caught:
        encode_infer(respond(parameters={"p": value}), asked())
    assert caught.value.code is code


@pytest.mark.parametrize("name", ['a"b', "é", "\\", "\n"])
def test_names_are_escaped(name: str) -> None:
    response = InferResponse(name, "1", name, [OutputTensor(name, FP32, Y.array)])
    document = json.loads(bytes(encode_infer(response, asked()).buffers[0]))
    assert (document["id"], document["model_name"], document["outputs"][0]["name"]) == (name, name, name)
