"""Gather joins requests along the batch dimension, split gives each its own rows, and the two undo each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan, tensor

from naiad.errors import InferenceServerError
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
