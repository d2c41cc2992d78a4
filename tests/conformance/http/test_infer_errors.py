"""How a request is held to its model: inputs, batch size, datatype and shape, and the words of each refusal."""

from __future__ import annotations

import json

import pytest


def tensor(name="X", shape=(1, 2), datatype="FP32", data=None):
    count = 1
    for size in shape:
        count *= size
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": [1] * count if data is None else data}


@pytest.fixture
def refuse(ask, error):
    def send(model, *inputs, **more):
        return error(ask("POST", f"/v2/models/{model}/infer", {"inputs": list(inputs), **more}))

    return send


def test_refusals_begin_with_the_request_id(refuse):
    assert refuse("echo", tensor(shape=[1]), id="r7").startswith("[request id: r7] ")
    assert refuse("echo", tensor(shape=[1])).startswith("[request id: <id_unknown>] ")


def test_an_input_may_be_given_once(refuse):
    assert "input 'X' already exists in request" in refuse("echo", tensor(), tensor())


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], "expected 2 inputs but got 0 inputs for model 'two'. Got input(s) [], but missing required input(s) ['A', 'B']"),
        (["A"], "expected 2 inputs but got 1 inputs for model 'two'. Got input(s) ['A'], but missing required input(s) ['B']"),
        (["A", "B", "C"], "expected 2 inputs but got 3 inputs for model 'two'. Got input(s) ['A', 'B', 'C']"),
    ],
)
def test_a_wrong_number_of_inputs_names_them(refuse, inputs, words):
    given = [tensor(name, datatype="INT32" if name == "B" else "FP32") for name in inputs]
    assert words in refuse("two", *given)


def test_an_unknown_input_is_named(refuse):
    assert "unexpected inference input 'Z' for model 'echo'" in refuse("echo", tensor("Z"))


def test_with_optional_inputs_the_number_is_between_two(refuse):
    extra = [tensor(f"x{index}", datatype="BYTES", data=["a", "b"]) for index in range(6)]
    assert "expected number of inputs between 1 and 5 but got 6 inputs" in refuse("gen", *extra)


def test_a_missing_required_input_is_named(refuse):
    assert "missing required input(s) ['text_input']" in refuse("gen", tensor("n", [1, 1], "INT32"))


def test_an_optional_input_may_be_left_out(ask):
    text = tensor("text_input", [1, 1], "BYTES", ["hi"])
    assert ask("POST", "/v2/models/gen/infer", {"inputs": [text]}).status_code == 200


def test_inputs_of_one_request_have_one_batch_size(refuse):
    text = refuse("two", tensor("A", [1, 2]), tensor("B", [2, 2], "INT32"))
    assert "input 'B' batch size does not match other inputs for 'two'" in text


def test_the_batch_may_be_as_large_as_the_limit(ask):
    assert ask("POST", "/v2/models/echo/infer", {"inputs": [tensor(shape=[8, 1])]}).status_code == 200


def test_a_larger_batch_gives_the_limit(refuse):
    text = refuse("echo", tensor(shape=[9, 1]))
    assert "inference request batch-size must be <= 8 for 'echo'" in text
    assert "batch 9 exceeds max_batch_size 8" in text


@pytest.mark.parametrize(("sent", "hint"), [("FP64", "float32"), ("INT32", "float32")])
def test_a_wrong_datatype_gives_both_and_the_numpy_dtype_to_use(refuse, sent, hint):
    text = refuse("echo", tensor(datatype=sent))
    assert f"inference input 'X' data-type is '{sent}', but model 'echo' expects 'FP32'" in text
    assert hint in text


# Shapes: what was sent, what the model takes, and one piece of advice that fits the case.
ADVICE = [
    ("img", [3, 4, 5], "add the batch dimension: [1,3,4,5]"),
    ("img", [1, 4, 3, 5], "dimension 1 is 4, must be 3 (looks transposed: NHWC/NCHW?)"),
    ("img", [1, 5, 3, 4], "dimension 1 is 5, must be 3 (looks transposed: NHWC/NCHW?)"),
    ("img", [1, 3, 4], "4 dimensions are needed, got 3"),
    ("img", [3, 4], "4 dimensions are needed, got 2"),
    ("img", [1, 1, 3, 4, 5], "[1,3,4,5] would fit"),
    ("img", [1, 3, 7, 5], "dimension 2 is 7, must be 4"),
    ("img", [0, 3, 4, 5], "the batch dimension must be 1 or more"),
    ("img0", [1, 3, 4, 5], "this model has no batch dimension (max_batch_size: 0): send [3,4,5]"),
    ("img0", [2, 3, 4, 5], "this model has no batch dimension (max_batch_size: 0): send one request for each item"),
    ("img0", [3, 5, 4], "dimension 1 is 5, must be 4"),
    ("img0", [], "3 dimensions are needed, got 0"),
    ("fixed", [1, 15], "dimension 1 is 15, must be 16"),
]


@pytest.mark.parametrize(("model", "shape", "advice"), ADVICE, ids=[f"{model}-{shape}" for model, shape, _ in ADVICE])
def test_a_wrong_shape_gives_model_input_both_shapes_and_one_advice(refuse, model, shape, advice):
    expected = {"img": "[-1,3,4,-1]", "img0": "[3,4,-1]", "fixed": "[-1,16]"}[model]
    text = refuse(model, tensor(shape=shape))
    sent = json.dumps(shape, separators=(",", ":"))
    assert f"unexpected shape for input 'X' for model '{model}'. Expected {expected}, got {sent}. NOTE: " in text
    assert advice in text


def test_a_scalar_to_a_batching_model_is_told_of_the_batch_dimension(refuse):
    assert "input 'X' has no shape but model requires batch dimension for 'img'" in refuse("img", tensor(shape=[]))


def test_a_zero_in_another_dimension_is_a_legal_empty_tensor(ask):
    response = ask("POST", "/v2/models/img/infer", {"inputs": [tensor(shape=[1, 3, 4, 0])]})
    assert response.json()["outputs"][0] == {"name": "Y", "datatype": "FP32", "shape": [1, 3, 4, 0], "data": []}


def test_a_good_shape_is_answered(ask):
    assert ask("POST", "/v2/models/img0/infer", {"inputs": [tensor(shape=[3, 4, 5])]}).status_code == 200


# Values that are no shape at all: refused by arithmetic, before anything is allocated.
BAD_SHAPES = [
    "-1", [-1], [2.5], [2.0], ["2"], [None], [], None, {}, True, [True], [[2]], 2, [1, 2], [2**63 - 1], [2**32, 2**32],
    [2**64 + 1], [2, 2**63], [1] * 10_000, [0],
]  # fmt: skip


@pytest.mark.parametrize("shape", BAD_SHAPES, ids=[str(shape)[:24] for shape in BAD_SHAPES])
def test_what_is_no_shape_of_two_elements_is_refused_and_names_the_input(refuse, shape):
    text = refuse("echo0", {"name": "X", "shape": shape, "datatype": "FP32", "data": [1, 2]})
    assert "input 'X'" in text
    assert len(text) < 1000


def test_a_good_shape_is_answered_after_all_bad_ones(ask):
    assert ask("POST", "/v2/models/echo0/infer", {"inputs": [tensor(shape=[2])]}).json()["outputs"][0]["data"] == [1, 1]


@pytest.mark.parametrize("key", ["shared_memory_offset", "shared_memory_byte_size"])
@pytest.mark.parametrize("value", [-1, "1", 1.5, None, True, [1]])
def test_sizes_of_shared_memory_are_unsigned_integers(refuse, key, value):
    item = {"name": "X", "shape": [1, 2], "datatype": "FP32", "parameters": {"shared_memory_region": "r", key: value}}
    assert f"'{key}' of input 'X'" in refuse("echo", item)


@pytest.mark.parametrize("other", [{"classification": 1}, {"binary_data": True}])
def test_an_output_in_shared_memory_has_no_other_form(refuse, other):
    outputs = [{"name": "Y", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8, **other}}]
    assert "can't have both 'shared_memory_region' and" in refuse("echo", tensor(), outputs=outputs)


def test_a_region_that_is_not_registered_is_404(ask, error):
    item = {
        "name": "X",
        "shape": [1, 2],
        "datatype": "FP32",
        "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8},
    }
    text = error(ask("POST", "/v2/models/echo/infer", {"inputs": [item]}), 404)
    assert text == "Unable to find shared memory region: 'r'"
