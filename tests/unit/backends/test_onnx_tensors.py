"""Every datatype goes through the engine unchanged, in every shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_models
import plans
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from naiad.backends.base import BackendInstance, ModelFiles
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.backends.onnx.tensors import bytes_of_texts, texts_of_bytes
from naiad.config.plan import ModelPlan, TensorPlan
from naiad.errors import Code, InferenceServerError
from naiad.tensor.datatype import ALL, BY_NAME


def _load(model: Any, plan: ModelPlan, folder: Path) -> BackendInstance:
    path = onnx_models.save(model, folder / "model.onnx")
    return OnnxRuntimeBackend.load(plan, plan.instances[0], ModelFiles("m", path))


def _one_to_one(source: str, target: str, dims: list[int]) -> ModelPlan:
    return plans.plan([plans.tensor("x", source, dims)], [plans.tensor("y", target, dims)])


def _values(datatype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(7).integers(0, 256, shape)
    if datatype == "BYTES":
        texts = [f"{number} é\0".encode() for number in numbers.flat]
        array = np.empty(len(texts), object)
        array[:] = texts
        return array.reshape(shape)
    return np.asarray(numbers, BY_NAME[datatype].numpy)


@pytest.mark.parametrize("datatype", [datatype.name for datatype in ALL])
@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (2, 0), (1, 1, 1, 1, 5)])
def test_each_datatype_passes_unchanged_in_each_shape(datatype: str, shape: tuple[int, ...], tmp_path: Path):
    plan = _one_to_one(datatype, datatype, [-1] * len(shape))
    instance = _load(onnx_models.identity(datatype, [None] * len(shape)), plan, tmp_path)
    sent = _values(datatype, shape)
    received = instance.execute({"x": sent}, ["y"])["y"]
    assert (sent.dtype, sent.shape) == (received.dtype, received.shape)
    np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("datatype", [datatype.name for datatype in ALL])
def test_a_scalar_is_one_element_to_the_config(datatype: str, tmp_path: Path):
    instance = _load(onnx_models.identity(datatype, []), _one_to_one(datatype, datatype, [1]), tmp_path)
    sent = _values(datatype, (1,))
    received = instance.execute({"x": sent}, ["y"])["y"]
    np.testing.assert_array_equal(received, sent)
    assert received.shape == (1,)


def test_a_scalar_reaches_the_model_as_a_scalar(tmp_path: Path):
    model = onnx_models.model(
        [helper.make_node("Shape", ["x"], ["y"])], [onnx_models.value("x", "FP32", [])], [onnx_models.value("y", "INT64", [0])]
    )
    plan = plans.plan([plans.tensor("x", "FP32", [1])], [plans.tensor("y", "INT64", [-1])])
    assert _load(model, plan, tmp_path).execute({"x": np.ones(1, np.float32)}, ["y"])["y"].shape == (0,)


def test_bf16_bits_are_read_as_the_numbers_they_mean(tmp_path: Path):
    numbers = np.array([1.5, -2.0, 3e38, 0.0], np.float32)
    bits = numbers.astype(ml_dtypes.bfloat16).view(np.uint16)
    instance = _load(onnx_models.cast("BF16", "FP32", [None]), _one_to_one("BF16", "FP32", [-1]), tmp_path)
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(instance.execute({"x": bits}, ["y"])["y"], expected)


def test_bf16_results_are_given_as_bits(tmp_path: Path):
    numbers = np.array([1.5, -2.0, 0.0], np.float32)
    instance = _load(onnx_models.cast("FP32", "BF16", [None]), _one_to_one("FP32", "BF16", [-1]), tmp_path)
    received = instance.execute({"x": numbers}, ["y"])["y"]
    np.testing.assert_array_equal(received, numbers.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_bf16_and_other_outputs_come_together(tmp_path: Path):
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=onnx_models.ELEMENT_TYPES["BF16"]),
        helper.make_node("Cast", ["x"], ["text"], to=onnx_models.ELEMENT_TYPES["BYTES"]),
        helper.make_node("Neg", ["x"], ["negative"]),
    ]
    kinds = {"half": "BF16", "text": "BYTES", "negative": "FP32"}
    outputs = [onnx_models.value(name, kind, [None]) for name, kind in kinds.items()]
    model = onnx_models.model(nodes, [onnx_models.value("x", "FP32", [None])], outputs)
    plan = plans.plan([plans.tensor("x", "FP32", [-1])], [plans.tensor(name, kind, [-1]) for name, kind in kinds.items()])
    received = _load(model, plan, tmp_path).execute({"x": np.array([1.0, 2.0], np.float32)}, list(kinds))
    np.testing.assert_array_equal(received["half"], [0x3F80, 0x4000])
    assert received["text"].tolist() == [b"1", b"2"]
    np.testing.assert_array_equal(received["negative"], [-1.0, -2.0])


def test_string_inputs_with_bf16_outputs_are_refused_at_load(tmp_path: Path):
    model = onnx_models.cast("BYTES", "BF16", [None])
    with pytest.raises(InferenceServerError, match="can't run both from Python"):
        _load(model, _one_to_one("BYTES", "BF16", [-1]), tmp_path)


def test_bytes_that_are_not_utf8_are_the_clients_fault(tmp_path: Path):
    instance = _load(onnx_models.identity("BYTES", [None]), _one_to_one("BYTES", "BYTES", [-1]), tmp_path)
    with pytest.raises(InferenceServerError, match="model 'm': input 'x' has an element that isn't UTF-8") as caught:
        instance.execute({"x": np.array([b"fine", b"\xff\xfe"], object)}, ["y"])
    assert caught.value.code is Code.INVALID_ARGUMENT


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_text_and_bytes_convert_both_ways(texts: list[str]):
    array = np.empty(len(texts), object)
    array[:] = [text.encode() for text in texts]
    assert texts == texts_of_bytes(array).tolist()
    assert array.tolist() == bytes_of_texts(texts_of_bytes(array)).tolist()


def test_a_batched_model_with_a_scalar_for_each_item_keeps_its_batch_dimension(tmp_path: Path):
    tensor = plans.tensor("x", "FP32", [1], 4, reshape=[])
    plan = plans.plan([tensor], [replace(tensor, name="y")], 4)
    instance = _load(onnx_models.identity("FP32", ["n"]), plan, tmp_path)
    assert instance.execute({"x": np.ones(3, np.float32)}, ["y"])["y"].shape == (3,)
    assert instance.execute({"x": np.ones(1, np.float32)}, ["y"])["y"].shape == (1,)


def test_optional_inputs_that_need_a_conversion_may_be_absent(tmp_path: Path):
    initializer = helper.make_tensor("prefix", onnx_models.ELEMENT_TYPES["BYTES"], [1], [b"a"])
    inputs = [onnx_models.value("x", "BYTES", [None]), onnx_models.value("prefix", "BYTES", [1])]
    node = helper.make_node("StringConcat", ["prefix", "x"], ["y"])
    model = onnx_models.model([node], inputs, [onnx_models.value("y", "BYTES", [None])], [initializer])
    model.opset_import[0].version = 20
    optional: TensorPlan = plans.tensor("prefix", "BYTES", [1], is_optional=True)
    plan = plans.plan([plans.tensor("x", "BYTES", [-1]), optional], [plans.tensor("y", "BYTES", [-1])])
    instance = _load(model, plan, tmp_path)
    x = np.array([b"b"], object)
    assert instance.execute({"x": x}, ["y"])["y"].tolist() == [b"ab"]
    assert instance.execute({"x": x, "prefix": np.array([b"c"], object)}, ["y"])["y"].tolist() == [b"cb"]
