"""Models with weights and expected outputs from the `onnx` package (exported by PyTorch), run through signature and load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import plans
import pytest
from onnx import numpy_helper

from naiad.backends.base import Array, ModelFiles
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.config.signature import TensorSignature

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
# The engine has no kernels for these operators as they were before operator set 7.
DROPPED = {"Add", "AveragePool", "BatchNormalization", "Gemm", "Mul", "PRelu", "Pow"}
# The first kind needs a locale that a system may lack, the second isn't made of tensors, the third is for training.
UNFIT = ("monday", "sequence", "gradient")


def _has_kernels(model: onnx.ModelProto) -> bool:
    return model.opset_import[0].version >= 7 or not DROPPED & {node.op_type for node in model.graph.node}


CASES = sorted(
    path.parent.relative_to(DATA).as_posix()
    for folder in ("pytorch-converted", "pytorch-operator", "simple")
    for path in (DATA / folder).glob("*/model.onnx")
    if not any(word in path.parent.name for word in UNFIT) and _has_kernels(onnx.load(path))
)


def test_there_are_many_cases():
    assert len(CASES) > 80


@pytest.mark.parametrize("case", CASES)
def test_a_model_gives_the_expected_outputs(case: str):
    files = ModelFiles("m", DATA / case)
    signature = OnnxRuntimeBackend.signature(files)
    assert signature is not None
    inputs = [_read(DATA / case / "test_data_set_0" / f"input_{index}.pb") for index in range(len(signature.inputs))]
    expected = [_read(DATA / case / "test_data_set_0" / f"output_{index}.pb") for index in range(len(signature.outputs))]
    plan = plans.plan([_plan(item) for item in signature.inputs], [_plan(item) for item in signature.outputs])
    instance = OnnxRuntimeBackend.load(plan, plan.instances[0], files)
    sent = {item.name: array for item, array in zip(signature.inputs, inputs)}
    received = instance.execute(sent, [item.name for item in signature.outputs])
    for item, wanted in zip(signature.outputs, expected):
        _compare(received[item.name], wanted)


def _plan(item: TensorSignature):
    return plans.tensor(item.name, item.datatype, list(item.shape) or [1])


def _compare(received: Array, wanted: Array) -> None:
    assert (wanted.dtype, wanted.shape) == (received.dtype, received.shape)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(received, wanted, rtol=1e-3, atol=1e-5)
    else:
        np.testing.assert_array_equal(received, wanted)


def _read(path: Path) -> Array:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    array = np.atleast_1d(numpy_helper.to_array(tensor))
    if tensor.data_type == onnx.TensorProto.STRING:
        encoded = [item if isinstance(item, bytes) else item.encode() for item in array.flat]
        return np.array(encoded, object).reshape(array.shape)
    return array
