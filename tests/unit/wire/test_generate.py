"""The generate extension: keys to tensors and parameters, lists to shapes, and one flat object back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from naiad.errors import Code, InferenceServerError
from naiad.request.call import InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.request.service import ModelMetadata, TensorMetadata
from naiad.tensor.datatype import BYTES, FP16, FP32, INT32
from naiad.wire.generate import decode_generate, encode_generate
from naiad.wire.limits import RequestLimits
from naiad.wire.sse import CONTENT_TYPE, event

LIMITS = RequestLimits(1 << 20)

INPUTS = (
    TensorMetadata("text_input", "BYTES", (-1, 1)),
    TensorMetadata("stop_words", "BYTES", (-1, -1), is_optional=True),
    TensorMetadata("n", "INT32", (-1, 1), is_optional=True),
    TensorMetadata("bias", "FP32", (-1, -1, 2), is_optional=True),
    TensorMetadata("half", "FP16", (-1, 1), is_optional=True),
)


def metadata(*inputs: TensorMetadata) -> ModelMetadata:
    return ModelMetadata("gen", ("1",), "python", inputs or INPUTS, (), 8, False)


def decode(document: Any, *inputs: TensorMetadata) -> InferCall:
    return decode_generate(json.dumps(document).encode(), metadata(*inputs), "2", LIMITS)


def refusal(document: Any, *inputs: TensorMetadata) -> str:
    with pytest.raises(InferenceServerError) as caught:
        decode(document, *inputs)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


@pytest.mark.parametrize(
    ("key", "value", "shape", "elements"),
    [
        ("text_input", "hi", [1, 1], [b"hi"]),
        ("text_input", ["hi"], [1, 1], [b"hi"]),
        ("text_input", ["a", "b"], [2, 1], [b"a", b"b"]),
        ("text_input", [["a"], ["b"]], [2, 1], [b"a", b"b"]),
        ("stop_words", ["a", "b", "é"], [1, 3], [b"a", b"b", "é".encode()]),
        ("stop_words", "a", [1, 1], [b"a"]),
        ("stop_words", [["a", "b"]], [1, 2], [b"a", b"b"]),
        ("bias", [1, 2, 3, 4], [1, 2, 2], [1.0, 2.0, 3.0, 4.0]),
        ("bias", [[1, 2], [3, 4]], [1, 2, 2], [1.0, 2.0, 3.0, 4.0]),
        ("bias", [[[1, 2]], [[3, 4]]], [2, 1, 2], [1.0, 2.0, 3.0, 4.0]),
        ("n", 3, [1, 1], [3]),
    ],
)
def test_input_is_spread_over_the_models_shape(key: str, value: Any, shape: list[int], elements: list[Any]) -> None:
    (read,) = decode({key: value}).inputs
    assert read.array is not None
    assert (read.name, read.shape, read.array.tolist()) == (key, shape, elements)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bias", [1, 2, 3]),
        ("bias", 1),
        ("bias", [[1, 2], [3]]),
        ("bias", [[1, 2, 3, 4]]),
        ("bias", [1, [2]]),
        ("bias", [[[[1, 2]]]]),
        ("text_input", [["a", "b"]]),
        ("text_input", [[]]),
    ],
)
def test_value_that_does_not_fit_is_refused_with_the_models_shape(key: str, value: Any) -> None:
    shape = next(tensor.shape for tensor in INPUTS if tensor.name == key)
    message = refusal({key: value})
    assert f"The schema can not convert input '{key}' to tensor with proper shape" in message
    assert f"the model takes [{','.join(map(str, shape))}]" in message


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [((), 1, []), ((3,), 3, [3]), ((-1, 3, -1, 2), 12, [1, 3, 2, 2]), ((-1, -1, 4), 8, [1, 2, 4]), ((-1, 0), 1, None)],
)
def test_innermost_variable_size_takes_the_rest(shape: tuple[int, ...], count: int, expected: list[int] | None) -> None:
    tensor = TensorMetadata("X", "INT32", shape)
    if expected is None:
        assert "proper shape" in refusal({"X": [1] * count}, tensor)
    else:
        assert decode({"X": [1] * count}, tensor).inputs[0].shape == expected


def test_other_keys_become_parameters_and_parameters_may_hold_inputs() -> None:
    call = decode(
        {
            "text_input": "hi",
            "max_tokens": 7,
            "stream": False,
            "priority": 9,
            "triton_x": "y",
            "parameters": {"n": 3, "temperature": 0.5},
        }
    )
    assert [item.name for item in call.inputs] == ["text_input", "n"]
    assert call.parameters == {"max_tokens": 7, "stream": False, "priority": 9, "triton_x": "y", "temperature": 0.5}
    assert (call.model_name, call.model_version, call.id, call.priority) == ("gen", "2", "", 0)


def test_id_is_the_requests_id_and_also_goes_the_way_of_other_keys() -> None:
    call = decode({"id": "7", "text_input": "hi"})
    assert (call.id, call.parameters) == ("7", {"id": "7"})
    call = decode({"id": "7"}, TensorMetadata("id", "BYTES", (1,)))
    assert (call.id, call.inputs[0].name, call.parameters) == ("7", "id", {})


def test_empty_array_for_an_input_counts_as_absent() -> None:
    assert [item.name for item in decode({"text_input": "hi", "stop_words": []}).inputs] == ["text_input"]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ({"text_input": None}, ["'text_input' is null"]),
        ({"other": None}, ["'other' is null"]),
        ({"other": []}, ["'other'", "invalid type", "array"]),
        ({"other": {}}, ["'other'", "invalid type", "object"]),
        ({"text_input": {}}, ["'text_input'", "object"]),
        ({"text_input": 1}, ["'text_input'", "element 0", "number 1"]),
        ({"n": 2**31}, ["'n'", "element 0", "INT32 holds"]),
        ({"half": 1.0}, ["receiving FP16 data via JSON", "'half'"]),
        ({"id": 7}, ["'id' must be a string"]),
        ({"parameters": []}, ["'parameters' must be an object"]),
        ({"parameters": {"parameters": {}}}, ["'parameters'", "invalid type"]),
        ({"n": 1, "parameters": {"n": 1}}, ["'n' is given twice"]),
        ({"x": 1, "parameters": {"x": 1}}, ["'x' is given twice"]),
        ([], ["failed to parse the request JSON buffer"]),
    ],
    ids=str,
)
def test_wrong_value_is_refused_naming_its_key(document: Any, texts: list[str]) -> None:
    message = refusal(document)
    assert [text for text in texts if text not in message] == []


def test_parameters_may_not_be_an_input_too() -> None:
    assert "input named 'parameters'" in refusal({"x": 1}, TensorMetadata("parameters", "BYTES", (1,)))


def test_sum_of_the_inputs_is_held_to_the_limit() -> None:
    tensors = TensorMetadata("A", "FP64", (-1,)), TensorMetadata("B", "FP64", (-1,))
    body = json.dumps({"A": [1] * 5, "B": [1] * 6}, separators=(",", ":")).encode()
    assert decode_generate(body, metadata(*tensors), "", RequestLimits(88)).inputs
    with pytest.raises(InferenceServerError, match=r"all inputs of 88 bytes exceeds the limit of 87 bytes"):
        decode_generate(body, metadata(*tensors), "", RequestLimits(87))
    with pytest.raises(InferenceServerError, match=f"request JSON size of {len(body)} bytes"):
        decode_generate(body, metadata(*tensors), "", RequestLimits(len(body) - 1))


def test_response_is_one_flat_object_with_sorted_keys() -> None:
    outputs = [
        OutputTensor("text_output", BYTES, np.array([b"a", "é".encode()], object)),
        OutputTensor("info", INT32, np.array([[3]], np.int32)),
        OutputTensor("empty", FP32, np.empty((0,), np.float32)),
        OutputTensor("score", FP32, np.array([0.1], np.float32)),
        OutputTensor("one", BYTES, np.array([b"[x]"], object)),
    ]
    text = encode_generate(InferResponse("gen", "1", "7", outputs, {"p": True}))
    assert text.decode() == (
        '{"empty":[],"id":"7","info":3,"model_name":"gen","model_version":"1","one":"[x]","p":true,"score":0.1,'
        '"text_output":["a","é"]}'
    )


def test_response_without_id_has_none_and_non_finite_scalars_are_unquoted() -> None:
    text = encode_generate(InferResponse("gen", "1", "", [OutputTensor("f", FP32, np.array([np.nan], np.float32))]))
    assert text == b'{"f":NaN,"model_name":"gen","model_version":"1"}'


def test_response_with_half_floats_is_refused() -> None:
    with pytest.raises(InferenceServerError, match="sending FP16 data via JSON"):
        encode_generate(InferResponse("gen", "1", "", [OutputTensor("h", FP16, np.zeros(1, np.float16))]))


def test_event_is_one_data_line_and_a_blank_one() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert CONTENT_TYPE == b"text/event-stream; charset=utf-8"
