"""One piece of advice for each wrong shape: what would make it fit."""

import pytest
from plans import tensor

from naiad.core.shape_advice import advise

BATCHING = tensor("X", "FP32", [3, 4, -1], 8)
WHOLE = tensor("X", "FP32", [3, 4, -1])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([3, 4, 5], "add the batch dimension: [1,3,4,5]"),
        ([1, 4, 3, 5], "dimension 1 is 4, must be 3 (looks transposed: NHWC/NCHW?)"),
        ([1, 9, 9, 9], "dimension 1 is 9, must be 3"),
        ([1, 3, 4], "4 dimensions are needed, got 3: the batch dimension (1 to 8) and 3 of the item, [3,4,-1]"),
        (
            [1, 1, 3, 4, 5],
            "4 dimensions are needed, got 5: the batch dimension (1 to 8) and 3 of the item, [3,4,-1]; [1,3,4,5] would fit",
        ),
        ([0, 3, 4, 5], "the batch dimension must be 1 or more"),
    ],
)
def test_a_batching_model(shape, expected):
    assert advise(shape, BATCHING, 8) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([1, 3, 4, 5], "this model has no batch dimension (max_batch_size: 0): send [3,4,5]"),
        ([2, 3, 4, 5], "this model has no batch dimension (max_batch_size: 0): send one request for each item"),
        ([4, 3, 5], "dimension 0 is 4, must be 3 (looks transposed: NHWC/NCHW?)"),
        ([3, 4], "3 dimensions are needed, got 2"),
    ],
)
def test_a_model_that_does_not_batch(shape, expected):
    assert advise(shape, WHOLE, 0) == expected


def test_ten_thousand_dimensions_cost_nothing():
    assert "got 10000" in advise([1] * 10_000, BATCHING, 8)


def test_a_single_string_is_told_its_batch_dimension():
    assert advise([1], tensor("S", "BYTES", [1], 4), 4) == "add the batch dimension: [1,1]"
