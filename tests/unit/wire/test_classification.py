"""Classification: order, text, labels, shapes and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.request.response import OutputTensor
from naiad.tensor.datatype import BF16, BOOL, BY_NAME, BYTES, FP16, FP32, FP64, INT32, INT64, UINT64, Datatype
from naiad.wire.classification import classify

LABELS = ("cat", "dog", "a:b", "é")


def classes(values: Any, count: int, datatype: Datatype = FP32, labels: tuple[str, ...] = (), batching: bool = False) -> Any:
    array = np.array(values, datatype.numpy)
    return classify(OutputTensor("P", datatype, array), labels, count, batching).tolist()


def refusal(array: Any, datatype: Datatype, batching: bool = False) -> str:
    with pytest.raises(InferenceServerError) as caught:
        classify(OutputTensor("P", datatype, array), (), 1, batching)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_highest_values_come_first_and_ties_by_index() -> None:
    assert classes([0.1, 3.3, 3.3, -2], 3, labels=LABELS) == [b"3.300000:1:dog", b"3.300000:2:a:b", b"0.100000:0:cat"]


def test_more_classes_than_elements_give_all_of_them() -> None:
    assert len(classes([0.1, 3.3, 3.3, -2], 10)) == 4


@pytest.mark.parametrize("labels", [("a", "b"), ("a", "b", "", ""), ("a", "b", "")])
def test_element_without_a_label_has_no_second_colon(labels: tuple[str, ...]) -> None:
    assert classes([1, 2, 3, 4], 4, labels=labels) == [b"4.000000:3", b"3.000000:2", b"2.000000:1:b", b"1.000000:0:a"]


def test_batching_models_are_ranked_item_by_item() -> None:
    values = [[1, 2, 3], [6, 5, 4]]
    assert classes(values, 2, batching=True) == [[b"3.000000:2", b"2.000000:1"], [b"6.000000:0", b"5.000000:1"]]
    assert classes(values, 2) == [b"6.000000:3", b"5.000000:4"]


def test_items_of_several_dimensions_are_taken_flat() -> None:
    assert classes([[[1, 2, 3], [4, 9, 0]]], 2, batching=True) == [[b"9.000000:4", b"4.000000:3"]]


def test_floats_print_as_c_does_and_nan_is_last() -> None:
    values = [math.nan, math.inf, -0.0, 1e30, 1e-30, -math.inf]
    assert classes(values, 6) == [
        b"inf:1",
        b"1000000015047466219876688855040.000000:3",
        b"0.000000:4",
        b"-0.000000:2",
        b"-inf:5",
        b"nan:0",
    ]


def test_values_after_nan_are_still_ranked_when_nan_is_asked_for() -> None:
    assert classes([math.nan, 1.0, math.nan, 2.0, math.nan], 4) == [b"2.000000:3", b"1.000000:1", b"nan:0", b"nan:2"]


@pytest.mark.parametrize(
    ("datatype", "values"),
    [(INT32, [-5, 7, 0]), (INT64, [-(2**63), 2**63 - 1, 0]), (UINT64, [0, 2**64 - 1, 1])],
    ids=str,
)
def test_integers_are_exact_and_print_plainly(datatype: Datatype, values: list[int]) -> None:
    ordered = sorted(range(3), key=lambda index: -values[index])
    assert classes(values, 3, datatype) == [f"{values[index]}:{index}".encode() for index in ordered]


@given(st.lists(st.integers(-3, 3) | st.floats(-2, 2) | st.just(math.nan), min_size=1, max_size=40), st.integers(1, 45))
def test_ranking_agrees_with_a_stable_sort(values: list[float], count: int) -> None:
    numbers = [index for index in range(len(values)) if not math.isnan(values[index])]
    by_rule = sorted(numbers, key=lambda index: -values[index])
    by_rule += [index for index in range(len(values)) if math.isnan(values[index])]
    found = [int(entry.split(b":")[1]) for entry in classes(values, count, FP64)]
    assert found == by_rule[:count]


@pytest.mark.parametrize("datatype", [FP16, BF16, BOOL, BYTES], ids=str)
def test_datatype_without_an_order_is_refused_naming_output_and_datatype(datatype: Datatype) -> None:
    array: Any = np.array([b"a", b"b"], object) if datatype is BYTES else np.ones(2, datatype.numpy)
    message = refusal(array, datatype)
    assert f"class result not available for output due to unsupported type {datatype.name}" in message
    assert "'P'" in message


@pytest.mark.parametrize("name", ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64"])
def test_every_number_is_supported(name: str) -> None:
    assert classes([1, 3, 2], 1, BY_NAME[name])[0].endswith(b":1")


@pytest.mark.parametrize(("shape", "batching"), [((0,), False), ((2, 0), True), ((0, 3), True)])
def test_no_elements_are_refused(shape: tuple[int, ...], batching: bool) -> None:
    assert "without elements" in refusal(np.empty(shape, np.float32), FP32, batching)


def test_more_than_a_million_elements_in_an_item_are_refused() -> None:
    array = np.zeros((1, 1_000_001), np.int8)
    assert "1000001 elements, at most 1000000" in refusal(array, BY_NAME["INT8"], batching=True)
    assert classes(array[:, :-1], 2, BY_NAME["INT8"], batching=True) == [[b"0:0", b"0:1"]]


def test_scalar_output_is_one_element() -> None:
    assert classes(2.5, 3) == [b"2.500000:0"]
