"""Makes the small ONNX models that cost nothing to run: the identity, and a running sum whose state the server keeps.

Needs the package onnx, which is imported when a model is made.
"""

from __future__ import annotations

from typing import Any

OPSET = 18
IR_VERSION = 9


def identity(size: int) -> bytes:
    """Return the model OUTPUT0 = INPUT0, FP32 [n, size]."""
    from onnx import TensorProto, helper  # noqa: PLC0415

    shape: list[str | int | None] = ["n", size]
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    given = helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, shape)
    return _model([node], [given], [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, shape)])


def accumulator() -> bytes:
    """Return the model OUTPUT0 = STATE_OUT = INPUT0 + STATE_IN, INT32 [n, 1]."""
    from onnx import TensorProto, helper  # noqa: PLC0415

    shape: list[str | int | None] = ["n", 1]
    given, state, output, state_out = (
        helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name in ("INPUT0", "STATE_IN", "OUTPUT0", "STATE_OUT")
    )
    nodes = [
        helper.make_node("Add", ["INPUT0", "STATE_IN"], ["OUTPUT0"]),
        helper.make_node("Identity", ["OUTPUT0"], ["STATE_OUT"]),
    ]
    return _model(nodes, [given, state], [output, state_out])


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
    from onnx import helper  # noqa: PLC0415

    graph = helper.make_graph(nodes, "small", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return made.SerializeToString()
