"""The ONNX project's own operator cases, with the outputs that it expects, run through the backend.

Cases with tensors that can't be served (sequences, float8, int4 …) are left out, and those that this release of the engine has
no kernel for, or whose operator set is newer than it.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
import onnx_models
import plans
import pytest
from onnx import numpy_helper

from naiad.backends.base import Array, ModelFiles
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.config.plan import TensorPlan
from naiad.errors import InferenceServerError

OPERATORS = (
    "abs", "add", "and_", "argmax", "bitwiseand", "cast", "clip", "concat", "cumsum", "div", "equal", "expand", "eyelike",
    "gather", "greater", "identity", "isnan", "less", "matmul", "max", "min", "mod", "mul", "neg", "nonzero", "not_", "onehot",
    "pad", "pow", "reducesum", "relu", "reshape", "shape", "sign", "size", "slice", "softmax", "split", "squeeze",
    "string_concat", "string_split", "sub", "tile", "topk", "transpose", "unsqueeze", "where",
)  # fmt: skip
NAMES = {number: name for name, number in onnx_models.ELEMENT_TYPES.items()}
# Older engines refuse a newer file format, which these cases use nothing of.
IR_VERSION = 10
UNSUPPORTED = ("Could not find an implementation", "official released onnx opset versions")


@cache
def _cases(operator: str) -> tuple[Any, ...]:
    """Return the cases of one operator's module, which makes them when it is imported."""
    before = len(node_cases._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, from computing the expected outputs
        importlib.import_module(f"onnx.backend.test.case.node.{operator}")
    return tuple(node_cases._NodeTestCases[before:])


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operators_cases_give_the_expected_outputs(operator: str, tmp_path: Path):
    cases = [case for case in _cases(operator) if _is_servable(case)]
    right = [_has_right_outputs(case, tmp_path) for case in cases]
    if not any(right):
        pytest.skip(f"this onnxruntime is older than all {len(cases)} cases")


def _is_servable(case: Any) -> bool:
    return all(item.type.tensor_type.elem_type in NAMES for item in [*case.model.graph.input, *case.model.graph.output])


def _has_right_outputs(case: Any, folder: Path) -> bool:
    """Return False when the engine doesn't know `case`'s operator; fail when an output isn't the expected one."""
    graph = case.model.graph
    plan = plans.plan([_plan(item) for item in graph.input], [_plan(item) for item in graph.output])
    case.model.ir_version = min(case.model.ir_version, IR_VERSION)
    path = onnx_models.save(case.model, folder / f"{case.name}.onnx")
    try:
        instance = OnnxRuntimeBackend.load(plan, plan.instances[0], ModelFiles("m", path))
    except InferenceServerError as error:
        if any(text in error.message for text in UNSUPPORTED):
            return False
        raise
    for inputs, expected in case.data_sets:
        sent = {item.name: _sent(array, item) for item, array in zip(graph.input, inputs)}
        received = instance.execute(sent, [item.name for item in graph.output])
        for item, wanted in zip(graph.output, expected):
            _compare(received[item.name], _sent(wanted, item), case)
    return True


def _plan(item: onnx.ValueInfoProto) -> TensorPlan:
    tensor = item.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return plans.tensor(item.name, NAMES[tensor.elem_type], dims or [1])


def _sent(array: Any, item: onnx.ValueInfoProto) -> Array:
    array = numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else array
    array = np.atleast_1d(np.asarray(array))
    if NAMES[item.type.tensor_type.elem_type] == "BYTES":
        texts = np.empty(array.size, object)
        texts[:] = [text if isinstance(text, bytes) else str(text).encode() for text in array.flat]
        return texts.reshape(array.shape)
    return np.ascontiguousarray(array.view(np.uint16) if array.dtype.name == "bfloat16" else array)


def _compare(received: Array, wanted: Array, case: Any) -> None:
    assert (wanted.dtype, wanted.shape) == (received.dtype, received.shape), case.name
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(received, wanted, rtol=case.rtol, atol=case.atol, err_msg=case.name)
    else:
        np.testing.assert_array_equal(received, wanted, err_msg=case.name)
