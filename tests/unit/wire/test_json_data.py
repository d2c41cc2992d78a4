"""Tensor elements as JSON: one path for every datatype, exact types and ranges, and errors that name the element."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.request.response import OutputTensor
from naiad.tensor.datatype import BF16, BOOL, BY_NAME, BYTES, FP16, FP32, FP64, INT32, Datatype
from naiad.wire.json_data import decode_data, encode_data
from naiad.wire.limits import RequestLimits

LIMITS = RequestLimits(1 << 24)

INTEGERS = [datatype for name, datatype in BY_NAME.items() if "INT" in name]
SAMPLES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "BYTES": ["a", "", "é\x00😀"],
    **{datatype.name: [1, 2, 3] for datatype in INTEGERS},
    "FP32": [1, 0.5, -2.0],
    "FP64": [1, 0.1, -2.0],
}


def reference_flatten(data: Any) -> list[Any]:
    return [leaf for part in data for leaf in reference_flatten(part)] if isinstance(data, list) else [data]


def decode(data: Any, datatype: Datatype) -> list[Any]:
    array = decode_data(data, datatype, "X", LIMITS)
    assert array.dtype == datatype.numpy
    assert array.ndim == 1
    values: list[Any] = array.tolist()
    return [value.decode() for value in values] if datatype is BYTES else values


def refusal(data: Any, datatype: Datatype) -> str:
    with pytest.raises(InferenceServerError) as caught:
        decode_data(data, datatype, "X", LIMITS)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "'X'" in caught.value.message
    return caught.value.message


def written(output: OutputTensor) -> str:
    return orjson.dumps(encode_data(output), option=orjson.OPT_SERIALIZE_NUMPY).decode()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "nest", ["{0},{1},{2}", "[{0}],[{1}],[{2}]", "[{0},{1},{2}]", "[[[{0}]],[[{1}]]],{2}", "{0},[{1},[{2}]],[]"]
)
def test_nesting_is_read_in_order_for_every_datatype(name: str, nest: str) -> None:
    sample = SAMPLES[name]
    data = json.loads("[" + nest.format(*map(json.dumps, sample)) + "]")
    assert decode(data, BY_NAME[name]) == sample


@given(
    st.recursive(st.integers(-5, 5), lambda inner: st.lists(inner, max_size=4), max_leaves=30).filter(
        lambda x: isinstance(x, list)
    )
)
def test_flattening_agrees_with_the_obvious_one(data: list[Any]) -> None:
    assert decode(data, INT32) == reference_flatten(data)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_elements_are_an_empty_array(name: str) -> None:
    assert decode([[], []], BY_NAME[name]) == []


@pytest.mark.parametrize("depth", [100, 101, 900])
@pytest.mark.parametrize("leaf", ["1", "1,[2]"])
def test_nesting_is_allowed_100_deep(depth: int, leaf: str) -> None:
    opened = depth - leaf.count("[")
    data = json.loads("[" * opened + leaf + "]" * opened)
    if depth <= 100:
        assert decode(data, INT32) == reference_flatten(data)
    else:
        assert "nested more than 100" in refusal(data, INT32)


WRONG: dict[str, list[Any]] = {
    "BOOL": [0, 1.0, "true", None, {}],
    "BYTES": [0, 1.0, True, None, {}],
    **{datatype.name: [1.0, "1", True, None, {}] for datatype in INTEGERS},
    "FP32": ["1", True, None, {}],
    "FP64": ["1", True, None, {}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values], ids=str)
def test_element_of_another_type_is_refused_with_its_index(name: str, value: Any) -> None:
    message = refusal([SAMPLES[name][:2], [value]], BY_NAME[name])
    assert "element 2 " in message
    assert f"{name} takes" in message


@pytest.mark.parametrize("datatype", INTEGERS, ids=str)
def test_integers_are_exact_to_their_bounds_and_refused_beyond(datatype: Datatype) -> None:
    low, high = int(np.iinfo(datatype.numpy).min), int(np.iinfo(datatype.numpy).max)
    assert decode([low, high], datatype) == [low, high]
    for value in (low - 1, high + 1):
        assert f"element 1 of the data of input 'X' is number {value}: {datatype.name} holds {low} to {high}" in refusal(
            [low, value], datatype
        )


@pytest.mark.parametrize("value", [1e39, -1e39, 10**39])
def test_number_beyond_a_float_is_refused(value: float) -> None:
    assert "element 1 " in refusal([1, value, 2], FP32)
    assert decode([value], FP64) == [float(value)]


def test_integer_beyond_a_double_is_refused() -> None:
    assert "element 1 " in refusal([1, 10**400], FP64)


def test_non_finite_floats_are_kept() -> None:
    for datatype in (FP32, FP64):
        assert [str(value) for value in decode([math.nan, math.inf, -math.inf], datatype)] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize("datatype", [FP16, BF16], ids=str)
def test_half_floats_have_no_json_form(datatype: Datatype) -> None:
    assert f"receiving {datatype.name} data via JSON is not supported" in refusal([1.0], datatype)
    with pytest.raises(InferenceServerError, match=f"sending {datatype.name} data via JSON is not supported.*'Y'"):
        encode_data(OutputTensor("Y", datatype, np.zeros(1, datatype.numpy)))


@pytest.mark.parametrize("data", ["ab", None, 1, {}, True], ids=str)
def test_data_must_be_an_array(data: Any) -> None:
    assert "must be an array" in refusal(data, BYTES)


def test_decoded_size_is_held_to_the_limit() -> None:
    assert decode_data([1] * 10, FP64, "X", RequestLimits(80)).size == 10
    with pytest.raises(InferenceServerError, match=r"'X' of 88 bytes exceeds the limit of 80 bytes.*--http-max-input-size"):
        decode_data([1] * 11, FP64, "X", RequestLimits(80))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1, 1), (0,), (2, 0)], ids=str)
def test_output_is_written_flat_and_reads_back_the_same(name: str, shape: tuple[int, ...]) -> None:
    datatype = BY_NAME[name]
    sample = SAMPLES[name][: math.prod(shape)]
    array = decode_data(sample, datatype, "X", LIMITS).reshape(shape)
    assert json.loads(written(OutputTensor("Y", datatype, array))) == sample


def test_output_of_strided_or_scalar_memory_is_written_in_row_major_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert written(OutputTensor("Y", INT32, array.T)) == "[0,3,1,4,2,5]"
    assert written(OutputTensor("Y", BOOL, np.array(True))) == "[true]"


@pytest.mark.parametrize("datatype", [FP32, FP64], ids=str)
def test_non_finite_outputs_are_written_unquoted(datatype: Datatype) -> None:
    array = np.array([math.nan, 1.5, math.inf, -math.inf, 0.0, math.nan], datatype.numpy)
    assert written(OutputTensor("Y", datatype, array)) == "[NaN,1.5,Infinity,-Infinity,0.0,NaN]"


@given(st.lists(st.floats(width=32)))
def test_written_floats_read_back_bit_for_bit(values: list[float]) -> None:
    array = np.array(values, np.float32)
    read = np.array(json.loads(written(OutputTensor("Y", FP32, array))), np.float32)
    np.testing.assert_array_equal(read, array)


def test_output_bytes_that_are_not_utf8_need_the_binary_form() -> None:
    array = np.array([b"ok", b"\xff"], object)
    with pytest.raises(InferenceServerError, match=r"element 1 of output 'Y' is not valid UTF-8.*binary_data: true"):
        encode_data(OutputTensor("Y", BYTES, array))
