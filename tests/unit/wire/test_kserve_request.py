"""Infer requests: what is read, and how each mistake is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from naiad.errors import Code, InferenceServerError
from naiad.request.call import CallOutput, InferCall, RegionSlice
from naiad.wire.call_templates import CallTemplates
from naiad.wire.kserve_request import decode_infer, parse_header_length
from naiad.wire.limits import RequestLimits

LIMITS = RequestLimits(1 << 20)


def decode(document: Any, tail: bytes = b"", has_header: bool = True) -> InferCall:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return decode_infer(text + tail, len(text) if has_header else None, "m", "", LIMITS)


def refusal(document: Any, tail: bytes = b"", has_header: bool = True) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as caught:
        decode(document, tail, has_header)
    return caught.value


def with_input(**members: Any) -> dict[str, Any]:
    item = {"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2], **members}
    return {"inputs": [{key: value for key, value in item.items() if value is not ...}]}


def with_outputs(*outputs: Any, **parameters: Any) -> dict[str, Any]:
    return {**with_input(), "outputs": list(outputs), "parameters": parameters}


def binary(name: str, size: Any) -> dict[str, Any]:
    return {"name": name, "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": size}}


def test_all_members_are_read() -> None:
    call = decode(
        {
            **with_input(),
            "id": "7",
            "model_name": "ignored",
            "parameters": {
                "sequence_id": 2**64 - 1,
                "sequence_start": True,
                "sequence_end": True,
                "priority": 3,
                "timeout": 5,
                "binary_data_output": True,
                "s": "t",
                "i": -1,
                "b": False,
                "f": 0.5,
            },
            "outputs": [{"name": "Y", "parameters": {"classification": 3, "binary_data": True}}, {"name": "Z"}],
        }
    )
    assert (call.id, call.sequence_id, call.is_sequence_start, call.is_sequence_end) == ("7", 2**64 - 1, True, True)
    assert (call.priority, call.timeout_us, call.binary_output) == (3, 5, True)
    assert call.parameters == {"s": "t", "i": -1, "b": False, "f": 0.5}
    assert [(output.name, output.classification, output.is_binary) for output in call.outputs] == [
        ("Y", 3, True),
        ("Z", 0, False),
    ]
    assert call.inputs[0].array is not None
    assert call.inputs[0].array.tolist() == [1.0, 2.0]


def test_binary_inputs_are_views_in_the_order_of_the_inputs_that_have_them() -> None:
    json_input = with_input(name="J")["inputs"][0]
    text = json.dumps({"inputs": [binary("A", 8), json_input, binary("B", 0), binary("C", 4)]}).encode()
    body = bytearray(text + b"aaaaaaaacccc")
    call = decode_infer(body, len(text), "m", "", LIMITS)
    assert [item.buffer if item.buffer is None else bytes(item.buffer) for item in call.inputs] == [
        b"aaaaaaaa",
        None,
        b"",
        b"cccc",
    ]
    assert call.inputs[0].buffer is not None
    assert np.shares_memory(np.frombuffer(call.inputs[0].buffer, np.uint8), np.frombuffer(body, np.uint8))


def test_listed_output_ignores_binary_data_output() -> None:
    call = decode(with_outputs({"name": "Y"}, binary_data_output=True))
    assert call.binary_output
    assert not call.outputs[0].is_binary


def test_header_length_zero_makes_a_raw_binary_request_with_binary_outputs() -> None:
    call = decode_infer(b"\x00" * 8, 0, "m", "2", LIMITS)
    assert (call.raw_buffer, call.binary_output, call.model_version) == (b"\x00" * 8, True, "2")


def test_raw_binary_request_is_held_to_the_limit() -> None:
    with pytest.raises(InferenceServerError, match=r"11 bytes exceeds the limit of 10 bytes.*--http-max-input-size"):
        decode_infer(b"\x00" * 11, 0, "m", "", RequestLimits(10))


def test_binary_tensors_are_not_held_to_the_json_limit() -> None:
    text = json.dumps({"inputs": [binary("X", 5000)]}).encode()
    assert len(decode_infer(text + bytes(5000), len(text), "m", "", RequestLimits(len(text))).inputs) == 1


def test_json_size_is_allowed_up_to_the_limit_exactly() -> None:
    text = json.dumps(with_input()).encode()
    assert decode_infer(text, None, "m", "", RequestLimits(len(text))).inputs
    with pytest.raises(InferenceServerError, match=f"request JSON size of {len(text)} bytes exceeds"):
        decode_infer(text, None, "m", "", RequestLimits(len(text) - 1))


@pytest.mark.parametrize(("text", "length"), [("0", 0), ("10", 10), ("007", 7), ("2147483647", 2**31 - 1)])
def test_header_length_is_a_decimal_whole_number(text: str, length: int) -> None:
    assert parse_header_length(text) == length


@pytest.mark.parametrize(
    "text", ["", "abc", "-1", "+1", " 1", "1 ", "10.5", "0x10", "1e3", "\u0661", "\u00b2", "2147483648", "9" * 5000]
)
def test_header_length_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InferenceServerError, match="inference header size should be in range") as caught:
        parse_header_length(text)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("length", [3, 2**31 - 1, -1])
def test_header_length_beyond_the_body_names_the_range(length: int) -> None:
    with pytest.raises(InferenceServerError, match=r"inference header size should be in range \(0, 2\)"):
        decode_infer(b"{}", length, "m", "", LIMITS)


BAD_SHAPES = ["-1", [-1], [2.0], [2.5], ["2"], [None], None, {}, True, [True], [[2]], 2, [18446744073709551617], [2, -5], 1.5]


@pytest.mark.parametrize("shape", BAD_SHAPES, ids=str)
def test_malformed_shape_is_refused_naming_the_input_and_the_value(shape: Any) -> None:
    error = refusal(with_input(shape=shape))
    assert error.code is Code.INVALID_ARGUMENT
    assert "'shape' of input 'X'" in error.message
    assert "got " in error.message


@pytest.mark.parametrize("shape", [[], [0], [9223372036854775807], [4294967296, 4294967296], [1] * 10_000], ids=len)
def test_shape_of_integers_is_kept_as_it_is_and_allocates_nothing(shape: list[int]) -> None:
    assert decode(with_input(shape=shape)).inputs[0].shape == shape


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ({}, ["Unable to parse 'inputs'", "no such member"]),
        ({"inputs": {}}, ["'inputs'", "must be an array", "object"]),
        ({"inputs": [1]}, ["inputs[0]", "must be an object", "number 1"]),
        ({"inputs": ["ab"]}, ["inputs[0]", "must be an object", "string 'ab'"]),
        ({"inputs": [{}]}, ["inputs[0]", "no member 'name'"]),
        (with_input(datatype=...), ["input 'X'", "no member 'datatype'"]),
        (with_input(shape=...), ["input 'X'", "no member 'shape'"]),
        (with_input(name=3), ["'name' of inputs[0]", "number 3"]),
        (with_input(datatype=None), ["'datatype' of input 'X'", "null"]),
        (with_input(datatype="FP31"), ["invalid datatype for input X", "'FP31'"]),
        (with_input(datatype="FP16"), ["receiving FP16 data via JSON is not supported", "'X'"]),
        (with_input(datatype="BF16"), ["receiving BF16 data via JSON is not supported", "'X'"]),
        (with_input(parameters=[]), ["'parameters' of input 'X'", "array"]),
        (with_input(parameters=None), ["'parameters' of input 'X'", "null"]),
        (with_input(data=None), ["data of input 'X'", "null"]),
        ({**with_input(), "id": 7}, ["'id'", "number 7"]),
        ({**with_input(), "id": None}, ["'id'", "null"]),
        ({**with_input(), "parameters": []}, ["'parameters'", "array"]),
        ({**with_input(), "outputs": {}}, ["'outputs'", "object"]),
        (with_outputs(3), ["outputs[0]", "number 3"]),
        (with_outputs({}), ["outputs[0]", "no member 'name'"]),
        (with_outputs({"name": None}), ["outputs[0]", "null"]),
        (with_outputs({"name": "Y", "parameters": 1}), ["'parameters' of output 'Y'", "number 1"]),
        (with_outputs({"name": "Y", "parameters": {"binary_data": 1}}), ["'binary_data' of output 'Y'", "number 1"]),
        ([], ["failed to parse the request JSON buffer: ", "array of 0"]),
    ],
    ids=str,
)
def test_wrong_member_is_refused_naming_where_and_what(document: Any, texts: list[str]) -> None:
    error = refusal(document)
    assert error.code is Code.INVALID_ARGUMENT
    assert [text for text in texts if text not in error.message] == []


@pytest.mark.parametrize("classes", [-1, 2**31, 2**40, "3", True, 1.0, None, False])
def test_classification_is_an_integer_below_2_to_the_31(classes: Any) -> None:
    error = refusal(with_outputs({"name": "Y", "parameters": {"classification": classes}}))
    assert "'classification' of output 'Y' must be an integer from 0 to 2147483647" in error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("sequence_id", value) for value in (-1, 1.5, 2**64, True, None, [])],
        *[("sequence_start", value) for value in (1, "true", None)],
        *[("sequence_end", value) for value in (0, {})],
        *[("priority", value) for value in (-1, 1.0, "1", True, None)],
        *[("timeout", value) for value in (-1, 1.0, "1", False, 2**64)],
        *[("binary_data_output", value) for value in (1, "true", None)],
        *[("custom", value) for value in (None, [], {}, 2**63)],
        *[("triton_enable_empty_final_response", True), ("triton_", 1)],
    ],
    ids=str,
)
def test_parameter_of_wrong_type_or_range_is_refused_naming_its_key(key: str, value: Any) -> None:
    error = refusal({**with_input(), "parameters": {key: value}})
    assert error.code is Code.INVALID_ARGUMENT
    assert f"parameter '{key}'" in error.message


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"data": ...}, "none of them"),
        ({"data": ..., "parameters": {"x": 1}}, "none of them"),
        ({"parameters": {"binary_data_size": 8}}, "'binary_data_size' and 'data'"),
        ({"parameters": {"shared_memory_region": "r"}}, "'shared_memory_region' and 'data'"),
        ({"data": ..., "parameters": {"binary_data_size": 8, "shared_memory_region": "r"}}, "'binary_data_size' and 'shared_"),
    ],
)
def test_exactly_one_source_of_data_is_allowed(members: dict[str, Any], found: str) -> None:
    error = refusal(with_input(**members), bytes(8))
    assert "Input must set only one of the following fields" in error.message
    assert f"'X' has set {found}" in error.message


@pytest.mark.parametrize("size", [-1, 8.0, "8", True, None, 2**64, []], ids=str)
def test_binary_data_size_is_a_whole_number(size: Any) -> None:
    assert "'binary_data_size' of input 'X'" in refusal({"inputs": [binary("X", size)]}, bytes(8)).message


def test_input_beyond_the_body_tells_how_many_bytes_are_missing() -> None:
    error = refusal({"inputs": [binary("A", 8), binary("B", 8)]}, bytes(13))
    assert error.message == "unexpected size for input 'B', expecting 3 additional bytes for model 'm'"
    assert "expecting 8 additional bytes" in refusal({"inputs": [binary("A", 8)]}, has_header=False).message
    assert "expecting 9223372036854775807 additional" in refusal({"inputs": [binary("A", 2**63 - 1)]}).message


def test_bytes_behind_the_last_input_are_refused() -> None:
    error = refusal({"inputs": [binary("A", 8)]}, bytes(9))
    assert "unexpected additional input data for model 'm': 1 bytes" in error.message


@pytest.mark.parametrize(("more", "offset"), [({}, 0), ({"shared_memory_offset": 16}, 16)])
def test_tensors_in_shared_memory_are_pieces_of_regions(more: dict[str, int], offset: int) -> None:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 8, **more}
    (item,) = decode(with_input(data=..., parameters=parameters)).inputs
    assert (item.region, item.buffer, item.array) == (RegionSlice("r", offset, 8), None, None)
    (output,) = decode(with_outputs({"name": "Y", "parameters": parameters})).outputs
    assert output == CallOutput("Y", region=RegionSlice("r", offset, 8))


@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_tensor_in_shared_memory_needs_its_size(kind: str) -> None:
    parameters = {"shared_memory_region": "r"}
    document = (
        with_input(data=..., parameters=parameters)
        if kind == "input"
        else with_outputs({"name": "Y", "parameters": parameters})
    )
    error = refusal(document)
    assert error.code is Code.INVALID_ARGUMENT
    assert (
        f"{kind} '{'X' if kind == 'input' else 'Y'}' is in shared memory region 'r': 'shared_memory_byte_size' is missing"
        in error.message
    )


@pytest.mark.parametrize("kind", ["input", "output"])
def test_calls_with_regions_are_no_templates(kind: str) -> None:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    region = {"name": "Y", "shape": [2], "datatype": "FP32", "parameters": parameters}
    document = {"inputs": [binary("X", 8)], **({"outputs": [region]} if kind == "output" else {})}
    if kind == "input":
        document["inputs"].append(region)
    text = json.dumps(document).encode()
    templates = CallTemplates()
    for _ in range(2):
        assert decode_infer(text + bytes(8), len(text), "m", "", LIMITS, templates).template is None


@pytest.mark.parametrize("key", ["shared_memory_offset", "shared_memory_byte_size"])
@pytest.mark.parametrize("value", [-1, 1.5, "1", True, None])
def test_shared_memory_numbers_are_whole(key: str, value: Any) -> None:
    error = refusal(with_input(data=..., parameters={"shared_memory_region": "r", key: value}))
    assert error.code is Code.INVALID_ARGUMENT
    assert f"'{key}' of input 'X'" in error.message


@pytest.mark.parametrize("other", [{"classification": 1}, {"binary_data": True}])
def test_output_region_excludes_classification_and_binary_data(other: dict[str, Any]) -> None:
    error = refusal(with_outputs({"name": "Y", "parameters": {"shared_memory_region": "r", **other}}))
    assert error.code is Code.INVALID_ARGUMENT
    assert next(iter(other)) in error.message


def test_ten_thousand_inputs_are_read() -> None:
    item = with_input()["inputs"][0]
    assert len(decode({"inputs": [item] * 10_000}).inputs) == 10_000


def test_hundred_thousand_nested_arrays_are_refused() -> None:
    error = refusal(b'{"inputs":' + b"[" * 100_000)
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.startswith("failed to parse the request JSON buffer: ")
