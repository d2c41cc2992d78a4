"""Gather joins requests along the batch dimension, split gives each its own rows, and the two undo each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan, tensor

from naiad.errors import InferenceServerError
from naiad.execution.output_checks import OutputChecker
from naiad.execution.tensors import BatchTensors
from naiad.request.request import InferRequest
from naiad.request.responder import Responder


class Nobody:
    def send(self, response, is_final):
        pass

    def fail(self, error):
        pass

    def record_success(self, request_ns):
        pass

    def record_failure(self, reason, request_ns):
        pass


def request(inputs, outputs=("Y",), batch_size=1) -> InferRequest:
    return InferRequest(inputs, outputs, batch_size, Responder(Nobody(), Nobody(), 0), 0)


BATCHING = plan([tensor("X", "FP32", [2], 8)], [tensor("Y", "FP32", [2], 8)], 8)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_split_undoes_gather(sizes):
    tensors = BatchTensors(BATCHING)
    arrays = [np.random.default_rng(size).random((size, 2), np.float32) for size in sizes]
    requests = [request({"X": array}, batch_size=len(array)) for array in arrays]
    gathered = tensors.gather(requests)
    assert gathered["X"].shape == (sum(sizes), 2)
    answers = tensors.split({"Y": gathered["X"]}, requests)
    for array, answer in zip(arrays, answers):
        np.testing.assert_array_equal(answer[0].array, array)


def test_a_batch_of_one_is_not_copied():
    array = np.ones((1, 2), np.float32)
    assert BatchTensors(BATCHING).gather([request({"X": array})])["X"] is array


def test_an_array_that_is_not_aligned_is_copied_for_the_backend():
    raw = np.zeros(9, np.uint8)[1:].view(np.float32).reshape(1, 2)
    assert not raw.flags.aligned
    assert BatchTensors(BATCHING).gather([request({"X": raw})])["X"].flags.aligned


def test_outputs_of_a_batch_are_views():
    requests = [request({"X": np.ones((1, 2), np.float32)}) for _ in range(2)]
    result = np.zeros((2, 2), np.float32)
    answers = BatchTensors(BATCHING).split({"Y": result}, requests)
    assert all(np.shares_memory(answer[0].array, result) for answer in answers)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 2), np.float32), ["'Y'", "[3,2]", "[2,-1]".replace("-1", "2")]),
        (np.zeros((2,), np.float32), ["[2]", "[2,2]"]),
        (np.zeros((2, 2), np.float64), ["float64", "FP32"]),
    ],
)
def test_an_output_of_the_wrong_shape_or_dtype_is_the_models_fault(array, words):
    requests = [request({"X": np.ones((1, 2), np.float32)}) for _ in range(2)]
    with pytest.raises(InferenceServerError) as caught:
        BatchTensors(BATCHING).split({"Y": array}, requests)
    assert caught.value.code.value == "INTERNAL"
    assert all(word in caught.value.message for word in ["model 'm'", *words])


def test_reshape_shows_the_backend_its_own_shape_and_the_client_its_own():
    scalar = plan([tensor("X", "INT32", [1], 8, [])], [tensor("Y", "INT32", [1], 8, [])], 8)
    tensors = BatchTensors(scalar)
    requests = [request({"X": np.array([[value]], np.int32)}) for value in (5, 6)]
    gathered = tensors.gather(requests)
    assert gathered["X"].shape == (2,)
    answers = tensors.split({"Y": gathered["X"]}, requests)
    assert [answer[0].array.tolist() for answer in answers] == [[[5]], [[6]]]


def test_reshape_carries_variable_sizes_in_their_order():
    variable = plan([tensor("X", "INT32", [-1, 2, -1], 0, [-1, -1, 2])], [tensor("Y", "INT32", [1])])
    gathered = BatchTensors(variable).gather([request({"X": np.zeros((3, 2, 5), np.int32)})])
    assert gathered["X"].shape == (3, 5, 2)


def test_only_the_requested_outputs_are_answered_in_the_order_asked_for():
    two = plan([tensor("X", "FP32", [1])], [tensor("A", "FP32", [1]), tensor("B", "FP32", [1])])
    one = np.zeros(1, np.float32)
    answers = BatchTensors(two).split({"A": one, "B": one}, [request({"X": one}, ("B", "A"))])
    assert [output.name for output in answers[0]] == ["B", "A"]


TWO = plan([tensor("X", "FP32", [1], 8)], [tensor("A", "FP32", [1], 8), tensor("B", "FP32", [1], 8)], 8)


@pytest.mark.parametrize("count", [1, 2])
def test_a_wanted_output_that_is_not_there_is_an_error_that_names_it(count):
    one = np.zeros((count, 1), np.float32)
    requests = [request({"X": one[:1]}, ("A", "B")) for _ in range(count)]
    with pytest.raises(InferenceServerError, match="model 'm' returned no output 'B', which the request wants") as caught:
        BatchTensors(TWO).split({"A": one}, requests)
    assert caught.value.code.value == "INTERNAL"


@pytest.mark.parametrize("count", [1, 2])
def test_an_output_that_nobody_wants_may_be_missing(count):
    one = np.zeros((count, 1), np.float32)
    answers = BatchTensors(TWO).split({"A": one}, [request({"X": one[:1]}, ("A",)) for _ in range(count)])
    assert [[output.name for output in answer] for answer in answers] == [["A"]] * count


@pytest.mark.parametrize("count", [1, 2])
def test_a_backend_that_may_omit_outputs_answers_without_them(count):
    one = np.zeros((count, 1), np.float32)
    requests = [request({"X": one[:1]}, ("A", "B")) for _ in range(count)]
    answers = BatchTensors(TWO, may_omit_outputs=True).split({"B": one}, requests)
    assert [[output.name for output in answer] for answer in answers] == [["B"]] * count


STRINGS = plan([tensor("X", "FP32", [1], 8)], [tensor("L", "BYTES", [2], 8)], 8)


def strings(*elements: object) -> np.ndarray:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(-1, 2)


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ((b"a", "é"), r"'L' has a str at \[0,1\], elements of a BYTES output must be bytes"),
        ((b"a", b"b", None, b"d"), r"'L' has a NoneType at \[1,0\]"),
        ((b"a", 1), r"'L' has a int at \[0,1\]"),
    ],
)
def test_elements_of_a_string_output_that_are_not_bytes_are_the_models_fault(elements, text):
    array = strings(*elements)
    requests = [request({"X": np.zeros((1, 1), np.float32)}, ("L",)) for _ in range(len(array))]
    with pytest.raises(InferenceServerError, match=text):
        BatchTensors(STRINGS).split({"L": array}, requests)


def test_strings_may_be_empty_or_none_at_all():
    requests = [request({"X": np.zeros((1, 1), np.float32)}, ("L",))]
    [[output]] = BatchTensors(STRINGS).split({"L": strings(b"", b"\xff")}, requests)
    assert output.array.tolist() == [[b"", b"\xff"]]
    nothing = plan([tensor("X", "FP32", [1])], [tensor("L", "BYTES", [-1])])
    [[output]] = BatchTensors(nothing).split({"L": np.empty(0, object)}, [request({}, ("L",))])
    assert output.array.shape == (0,)


@pytest.mark.parametrize(("array", "given"), [(np.array([["a", "b"]]), "<U1"), (np.array([[b"a", b"b"]]), r"\|S1")])
def test_numpys_own_strings_are_no_string_output(array, given):
    with pytest.raises(InferenceServerError, match=f"'L' has the wrong datatype: {given} given, BYTES declared"):
        BatchTensors(STRINGS).split({"L": array}, [request({}, ("L",))])


@pytest.mark.parametrize(
    ("datatype", "shape", "text"),
    [
        ("FP64", [1, 2], r"'Y' has the wrong datatype: float64 \(FP64\) given, FP32 declared"),
        ("INT64", [1, 2], r"int64 \(INT64\) given"),
        ("BYTES", [1, 2], "BYTES given"),
        ("FP32", [2], r"'Y' has shape \[2\], must be \[3,2\]"),
        ("FP32", [1, 2], r"'Y' has shape \[1,2\], must be \[3,2\]"),
    ],
)
def test_an_output_that_is_only_described_is_held_to_the_same(datatype, shape, text):
    with pytest.raises(InferenceServerError, match=text):
        OutputChecker(BATCHING).check("Y", datatype, shape, 3)
    assert OutputChecker(BATCHING).check("Y", "FP32", [3, 2], 3) is BATCHING.outputs_by_name["Y"]
