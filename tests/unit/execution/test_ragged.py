"""Inputs of different shapes in one batch: one row of elements, what tells where each lies, and outputs that are cut again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_execution import Probe
from plans import plan, tensor

from naiad.config.plan import BatchInputKind, BatchInputPlan
from naiad.errors import InferenceServerError
from naiad.execution.ragged import RaggedTensors, batch_input

ARRAYS = [np.arange(size * 2, dtype=np.float32).reshape(1, size, 2) for size in (3, 1, 2)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [6, 2, 4]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [6, 8, 12]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 8, 12]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0, 0, 0, 0, 0, 0]),
        ("BATCH_ITEM_SHAPE", [[3, 2], [1, 2], [2, 2]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 2, 1, 2, 2, 2]),
    ],
)
@pytest.mark.parametrize("datatype", ["INT32", "FP32"])
def test_each_kind_tells_how_requests_lie(kind: str, expected: list, datatype: str) -> None:
    made = batch_input(BatchInputPlan(BatchInputKind(kind), tensor("T", datatype, [-1]), "X"), ARRAYS)
    assert (made.tolist(), made.dtype) == (expected, np.int32 if datatype == "INT32" else np.float32)


def test_a_request_of_several_items_has_a_row_of_shape_for_each() -> None:
    arrays = [np.zeros((2, 3), np.float32), np.zeros((1, 5), np.float32)]
    made = batch_input(BatchInputPlan(BatchInputKind.ITEM_SHAPE, tensor("T", "INT32", [-1, -1]), "X"), arrays)
    assert made.tolist() == [[3], [3], [5]]


def tensors() -> RaggedTensors:
    ragged = tensor("X", "FP32", [-1, 2], 8, allow_ragged_batch=True)
    made = plan([ragged, tensor("B", "FP32", [1], 8)], [tensor("Y", "FP32", [-1, 2], 8), tensor("N", "INT32", [1], 8)], 8)
    counts = BatchInputPlan(BatchInputKind.ELEMENT_COUNT, tensor("C", "INT32", [-1]), "X")
    return RaggedTensors(replace(made, batch_inputs=(counts,), scattered_outputs={"Y": "X"}).for_backend())


def requests(*wanted: tuple[str, ...]) -> list:
    made = []
    for index, array in enumerate(ARRAYS):
        probe = Probe({"X": array, "B": np.full((1, 1), index, np.float32)})
        probe.request.outputs = wanted[index] if wanted else ("N", "Y")
        made.append(probe.request)
    return made


def test_ragged_inputs_become_a_row_and_others_are_joined_along_the_batch() -> None:
    gathered = tensors().gather(requests())
    assert {name: array.shape for name, array in gathered.items()} == {"X": (12,), "B": (3, 1), "C": (3,)}
    assert gathered["X"].tolist() == [*range(6), *range(2), *range(4)]


@pytest.mark.parametrize("count", [1, 3])
def test_a_scattered_output_has_each_requests_shape_and_the_others_its_rows(count: int) -> None:
    sent = requests()[:count]
    total = sum(array.size for array in ARRAYS[:count])
    results = {"Y": np.arange(total, dtype=np.float32), "N": np.arange(count, dtype=np.int32).reshape(count, 1)}
    answers = tensors().split(results, sent)
    assert [[output.name for output in answer] for answer in answers] == [["N", "Y"]] * count
    assert [answer[1].array.shape for answer in answers] == [array.shape for array in ARRAYS[:count]]
    assert np.concatenate([answer[1].array.reshape(-1) for answer in answers]).tolist() == list(range(total))
    assert [answer[0].array.item() for answer in answers] == list(range(count))


def test_each_request_gets_what_it_wants() -> None:
    results = {"Y": np.zeros(12, np.float32), "N": np.zeros((3, 1), np.int32)}
    answers = tensors().split(results, requests(("Y",), ("N",), ("Y", "N")))
    assert [[output.name for output in answer] for answer in answers] == [["Y"], ["N"], ["Y", "N"]]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (np.zeros(11, np.float32), "'Y' has 11 elements of float32, must have 12 of float32, as many as input 'X'"),
        (np.zeros(12, np.int32), "'Y' has 12 elements of int32"),
        ([0.0] * 12, "'Y' has a list"),
    ],
)
def test_a_wrong_row_is_the_models_fault(wrong: object, text: str) -> None:
    with pytest.raises(InferenceServerError, match=text):
        tensors().split({"Y": wrong, "N": np.zeros((3, 1), np.int32)}, requests())


def test_a_missing_output_is_the_models_fault() -> None:
    with pytest.raises(InferenceServerError, match="returned no output 'Y'"):
        tensors().split({"N": np.zeros((3, 1), np.int32)}, requests())
