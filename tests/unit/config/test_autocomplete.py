"""Completing a config from a model file, and checking a written one against it."""

import pytest

from naiad.config.autocomplete import check, complete
from naiad.config.json_form import to_json
from naiad.config.pbtxt import parse_config
from naiad.config.signature import ModelSignature, TensorSignature
from naiad.config.validate import validate_tensors
from naiad.errors import Code, InferenceServerError


def signature(inputs, outputs):
    """Tensors as {name: (datatype, shape)}."""
    tensors = [tuple(TensorSignature(name, *rest) for name, rest in side.items()) for side in (inputs, outputs)]
    return ModelSignature(*tensors)


BATCHING = signature({"X": ("FP32", (-1, 3, -1))}, {"Y": ("BYTES", (-1,)), "Z": ("BF16", (-1, 2))})
FIXED = signature({"X": ("FP32", (3, -1))}, {"Y": ("INT64", (2,))})


def completed(text, of, default=4):
    config = parse_config(f'name: "m" {text}', "f")
    return config, complete(config, of, default)


def tensors_of(config, side):
    return [(t["name"], t["data_type"], t["dims"], t.get("reshape")) for t in to_json(config)[side]]


def test_a_batching_model_gets_the_default_size_the_batcher_and_a_warning():
    config, (warning,) = completed("", BATCHING)
    assert (config.max_batch_size, config.WhichOneof("scheduling_choice")) == (4, "dynamic_batching")
    assert "model 'm' supports batching" in warning
    assert "set to 4" in warning


def test_tensors_are_filled_without_the_batch_dim_and_one_value_an_item_as_a_reshape():
    config, _ = completed("", BATCHING)
    assert tensors_of(config, "input") == [("X", "TYPE_FP32", [3, -1], None)]
    assert tensors_of(config, "output") == [("Y", "TYPE_STRING", [1], {"shape": []}), ("Z", "TYPE_BF16", [2], None)]
    validate_tensors(config)


def test_a_model_that_can_not_batch_keeps_whole_shapes():
    config, warnings = completed("", FIXED)
    assert (config.max_batch_size, config.WhichOneof("scheduling_choice"), warnings) == (0, None, [])
    assert tensors_of(config, "input") == [("X", "TYPE_FP32", [3, -1], None)]
    assert tensors_of(config, "output") == [("Y", "TYPE_INT64", [2], None)]


def test_one_fixed_first_dim_prevents_batching():
    config, _ = completed("", signature({"X": ("FP32", (-1, 3))}, {"Y": ("FP32", (1, 3))}))
    assert config.max_batch_size == 0


def test_a_scalar_prevents_batching():
    config, _ = completed("", signature({"X": ("FP32", (-1, 3))}, {"Y": ("FP32", ())}))
    assert config.max_batch_size == 0


def test_a_given_size_on_a_model_that_can_not_batch_is_refused():
    with pytest.raises(InferenceServerError) as caught:
        completed("max_batch_size: 8", FIXED)
    assert Code.INVALID_ARGUMENT is caught.value.code
    assert caught.value.message.startswith(
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size"
    )


def test_a_given_size_stays_without_a_warning():
    config, warnings = completed("max_batch_size: 8", BATCHING)
    assert (config.max_batch_size, warnings) == (8, [])
    assert config.HasField("dynamic_batching")


@pytest.mark.parametrize("size", [0, 1])
def test_no_batcher_for_batches_of_one(size):
    config, _ = completed("", BATCHING, default=size)
    assert (size, None) == (config.max_batch_size, config.WhichOneof("scheduling_choice"))


def test_a_given_scheduler_stays():
    config, _ = completed("sequence_batching { }", BATCHING)
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"


def test_given_inputs_and_outputs_leave_everything_alone():
    text = 'input { name: "A" } output { name: "B" }'
    config, warnings = completed(text, BATCHING)
    assert (parse_config(f'name: "m" {text}', "f"), []) == (config, warnings)


def test_only_the_side_that_is_missing_is_filled():
    config, _ = completed('input { name: "A" data_type: TYPE_FP32 dims: 1 }', BATCHING)
    assert ([t.name for t in config.input], [t.name for t in config.output]) == (["A"], ["Y", "Z"])


def test_a_batch_input_counts_as_inputs():
    config, _ = completed('batch_input { target_name: "X" }', BATCHING)
    assert ([t.name for t in config.input], [t.name for t in config.output]) == ([], ["Y", "Z"])


@pytest.mark.parametrize("of", [BATCHING, FIXED])
def test_what_was_completed_passes_the_check(of):
    config, _ = completed("", of)
    check(config, of)


def check_error(text, of=BATCHING):
    with pytest.raises(InferenceServerError) as caught:
        check(parse_config(f'name: "m" {text}', "f"), of)
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


X = 'input { name: "X" data_type: TYPE_FP32 dims: [ 3, -1 ] }'


def test_the_number_of_inputs_must_agree():
    assert check_error("max_batch_size: 4") == "unable to load model 'm', configuration expects 0 inputs, model provides 1"


def test_an_unknown_input_is_named_with_the_allowed_ones():
    message = check_error('max_batch_size: 4 input { name: "W" data_type: TYPE_FP32 dims: [ 3, -1 ] }')
    assert message == "unable to load model 'm': unexpected inference input 'W', allowed inputs are: X"


def test_an_unknown_target_of_a_batch_input_is_named():
    message = check_error('max_batch_size: 4 batch_input { target_name: "W" }')
    assert message == "unable to load model 'm': unexpected inference input 'W', allowed inputs are: X"


def test_an_unknown_output_is_named_with_the_allowed_ones():
    message = check_error(f'max_batch_size: 4 {X} output {{ name: "W" data_type: TYPE_FP32 dims: 1 }}')
    assert message == "unable to load model 'm': unexpected inference output 'W', allowed outputs are: Y, Z"


def test_an_output_may_be_left_out():
    check(parse_config(f'name: "m" max_batch_size: 4 {X} output {{ name: "Z" data_type: TYPE_BF16 dims: 2 }}', "f"), BATCHING)


def test_the_datatype_must_agree():
    message = check_error('max_batch_size: 4 input { name: "X" data_type: TYPE_INT32 dims: [ 3, -1 ] }')
    expected = "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'X', model provides TYPE_FP32"
    assert expected == message


def test_the_number_of_dims_must_agree_with_the_batch_dim():
    message = check_error('max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: [ 1, 3, -1 ] }')
    assert (
        message
        == "model 'm', tensor 'X': the model expects 3 dimensions (shape [-1,3,-1]) but the model configuration specifies "
        "4 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
        "making complete shape [-1,1,3,-1])"
    )


def test_the_number_of_dims_must_agree_without_batching():
    message = check_error('input { name: "X" data_type: TYPE_FP32 dims: 3 }', FIXED)
    assert (
        message == "model 'm', tensor 'X': the model expects 2 dimensions (shape [3,-1]) but the model configuration specifies "
        "1 dimensions (shape [3])"
    )


@pytest.mark.parametrize("dim", [4, -1])
def test_a_fixed_dim_of_the_model_must_be_written_as_it_is(dim):
    message = check_error(f'input {{ name: "X" data_type: TYPE_FP32 dims: [ {dim}, 5 ] }}', FIXED)
    assert (
        f"model 'm', tensor 'X': the model expects shape [3,-1] but the model configuration specifies shape [{dim},5]"
        == message
    )


def test_a_variable_dim_of_the_model_may_be_fixed_in_the_config():
    check(parse_config('name: "m" input { name: "X" data_type: TYPE_FP32 dims: [ 3, 5 ] }', "f"), FIXED)


def test_a_model_without_variable_first_dim_can_not_have_a_max_batch_size():
    message = check_error('max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }', FIXED)
    assert message.startswith("model 'm', tensor 'X': for the model to support batching its shape must have a first dimension")


def test_the_reshape_is_what_the_model_is_compared_with():
    text = f'name: "m" max_batch_size: 4 {X} output {{ name: "Y" data_type: TYPE_STRING dims: 1 reshape {{ shape: [ ] }} }}'
    check(parse_config(text, "f"), BATCHING)


def test_every_difference_is_told_at_once():
    text = 'max_batch_size: 4 input { name: "X" data_type: TYPE_INT32 dims: 1 } output { name: "W" }'
    message = check_error(text)
    assert message.startswith("3 mistakes:\n")
    assert all(part in message for part in ("TYPE_INT32", "expects 3 dimensions", "'W'"))
