"""A model's own tensors are read for auto-complete, and a config that doesn't fit them is refused with what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_models
import plans
import pytest
from onnx import helper

from naiad.backends.base import ModelFiles
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.config.plan import ModelPlan
from naiad.config.signature import TensorSignature
from naiad.errors import Code, InferenceServerError
from naiad.tensor.datatype import ALL


def _save(model: Any, folder: Path) -> ModelFiles:
    return ModelFiles("m", onnx_models.save(model, folder / "model.onnx"))


def _plan(dims: list[int], datatype: str = "FP32", max_batch_size: int = 0) -> ModelPlan:
    inputs = [plans.tensor(name, datatype, dims, max_batch_size) for name in ("a", "b")]
    outputs = [plans.tensor(name, datatype, dims, max_batch_size) for name in ("sum", "difference")]
    return plans.plan(inputs, outputs, max_batch_size)


def _refusal(plan: ModelPlan, files: ModelFiles) -> str:
    with pytest.raises(InferenceServerError) as caught:
        OnnxRuntimeBackend.load(plan, plan.instances[0], files)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "model 'm'" in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("datatype", [datatype.name for datatype in ALL])
def test_names_datatypes_and_shapes_are_the_models_with_minus_one_for_variable_sizes(datatype: str, tmp_path: Path):
    signature = OnnxRuntimeBackend.signature(_save(onnx_models.identity(datatype, ["n", 4, None]), tmp_path))
    assert signature is not None
    assert (TensorSignature("x", datatype, (-1, 4, -1)),) == signature.inputs
    assert (TensorSignature("y", datatype, (-1, 4, -1)),) == signature.outputs
    assert signature.supports_batching


def test_tensors_come_in_the_models_order(tmp_path: Path):
    signature = OnnxRuntimeBackend.signature(_save(onnx_models.sum_and_difference(), tmp_path))
    assert signature is not None
    assert (
        [tensor.name for tensor in signature.inputs],
        [tensor.name for tensor in signature.outputs],
    ) == (["a", "b"], ["sum", "difference"])


def test_an_input_with_a_default_is_not_in_the_signature(tmp_path: Path):
    signature = OnnxRuntimeBackend.signature(_save(onnx_models.scaled(), tmp_path))
    assert signature is not None
    assert [tensor.name for tensor in signature.inputs] == ["x"]


def test_a_scalar_has_no_dimensions_and_does_not_batch(tmp_path: Path):
    signature = OnnxRuntimeBackend.signature(_save(onnx_models.identity("INT64", []), tmp_path))
    assert signature is not None
    assert (signature.inputs[0].shape, signature.supports_batching) == ((), False)


def test_a_type_that_is_no_tensor_is_refused_with_its_name(tmp_path: Path):
    with pytest.raises(InferenceServerError, match=r"'items' has the ONNX type seq\(tensor\(float\)\)") as caught:
        OnnxRuntimeBackend.signature(_save(onnx_models.sequence_output(), tmp_path))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_an_output_that_cannot_be_served_may_be_left_out_of_the_config(tmp_path: Path):
    files = _save(onnx_models.sequence_output(), tmp_path)
    x = plans.tensor("x", "FP32", [-1])
    plan = plans.plan([x], [replace(x, name="y")])
    OnnxRuntimeBackend.load(plan, plan.instances[0], files).close()
    assert "seq(tensor(float))" in _refusal(plans.plan([x], [replace(x, name="items")]), ModelFiles("m", files.path))


@pytest.mark.parametrize("dims", [[-1, 4], [-1, -1], [7, 4]])
def test_a_config_may_fix_or_free_sizes(dims: list[int], tmp_path: Path):
    plan = _plan(dims)
    OnnxRuntimeBackend.load(plan, plan.instances[0], _save(onnx_models.sum_and_difference(), tmp_path)).close()


def test_a_config_may_leave_outputs_out(tmp_path: Path):
    plan = _plan([-1, 4])
    plan = plans.plan(list(plan.inputs), [plan.outputs[1]])
    OnnxRuntimeBackend.load(plan, plan.instances[0], _save(onnx_models.sum_and_difference(), tmp_path)).close()


def test_an_output_of_unknown_rank_takes_the_configs_shape(tmp_path: Path):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [onnx_models.value("x", "FP32", [None]), onnx_models.value("shape", "INT64", [None])]
    files = _save(onnx_models.model([node], inputs, [onnx_models.value("y", "FP32", None)]), tmp_path)
    plan = plans.plan(
        [plans.tensor("x", "FP32", [-1]), plans.tensor("shape", "INT64", [-1])], [plans.tensor("y", "FP32", [-1, 2])]
    )
    OnnxRuntimeBackend.load(plan, plan.instances[0], files).close()


def test_an_input_that_the_config_lacks_is_named(tmp_path: Path):
    plan = _plan([-1, 4])
    text = _refusal(plans.plan([plan.inputs[0]], list(plan.outputs)), _save(onnx_models.sum_and_difference(), tmp_path))
    assert "configuration expects 1 inputs, model provides 2: not in the configuration: b" in text


def test_a_name_that_is_not_the_models_is_named_with_those_that_are(tmp_path: Path):
    files = _save(onnx_models.sum_and_difference(), tmp_path)
    plan = _plan([-1, 4])
    more = plans.tensor("c", "FP32", [-1, 4])
    text = _refusal(plans.plan([*plan.inputs, more], list(plan.outputs)), files)
    assert "unexpected inference input 'c', allowed inputs are: a, b" in text
    text = _refusal(plans.plan(list(plan.inputs), [more]), files)
    assert "unexpected inference output 'c', allowed outputs are: sum, difference" in text


def test_a_datatype_that_differs_is_named_with_the_models(tmp_path: Path):
    text = _refusal(_plan([-1, 4], "INT32"), _save(onnx_models.sum_and_difference(), tmp_path))
    assert "tensor 'a': the model expects data type TYPE_FP32 but the model configuration specifies TYPE_INT32" in text


@pytest.mark.parametrize(("dims", "shape"), [([-1, 5], "[-1,5]"), ([4], "[4]"), ([-1, 4, 1], "[-1,4,1]")])
def test_a_shape_that_differs_is_named_with_the_models(dims: list[int], shape: str, tmp_path: Path):
    text = _refusal(_plan(dims), _save(onnx_models.sum_and_difference(), tmp_path))
    assert "tensor 'a': the model expects 2 dimensions (shape [-1,4])" in text
    assert f"specifies {len(dims)} dimensions, making complete shape {shape}" in text


def test_the_batch_dimension_is_explained_when_a_shape_differs(tmp_path: Path):
    text = _refusal(_plan([2, 4], max_batch_size=8), _save(onnx_models.sum_and_difference(), tmp_path))
    assert (
        "specifies 3 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape), "
        "making complete shape [-1,2,4]" in text
    )


def test_a_fixed_first_dimension_cannot_batch(tmp_path: Path):
    text = _refusal(_plan([4], max_batch_size=8), _save(onnx_models.sum_and_difference([1, 4]), tmp_path))
    assert "the first dimension must be variable for max_batch_size 8 but the model's shape is [1,4]" in text


def test_ragged_batches_are_refused_since_a_batch_is_one_tensor(tmp_path: Path):
    plan = _plan([4], max_batch_size=8)
    inputs = [plan.inputs[0], replace(plan.inputs[1], allow_ragged_batch=True)]
    text = _refusal(plans.plan(inputs, list(plan.outputs), 8), _save(onnx_models.sum_and_difference(), tmp_path))
    assert "allow_ragged_batch (input b) needs a batch_input or batch_output for ONNX models" in text
