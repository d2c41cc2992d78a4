"""Tiny ONNX models for tests, made with the `onnx` package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENT_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}

Dims = Sequence[int | str | None] | None


def value(name: str, datatype: str, dims: Dims) -> onnx.ValueInfoProto:
    """Return a graph input or output; a dim that is a name or None is variable, `dims` None is of unknown rank."""
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[datatype], dims)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """Return a model of these nodes."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def save(made: onnx.ModelProto, path: Path) -> Path:
    """Write `made` to `path` and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, str(path))
    return path


def identity(datatype: str, dims: Dims) -> onnx.ModelProto:
    """Return the model y = x."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [value("x", datatype, dims)], [value("y", datatype, dims)])


def cast(source: str, target: str, dims: Dims) -> onnx.ModelProto:
    """Return the model y = x as `target`."""
    node = helper.make_node("Cast", ["x"], ["y"], to=ELEMENT_TYPES[target])
    return model([node], [value("x", source, dims)], [value("y", target, dims)])


def sum_and_difference(dims: Dims = ("n", 4), datatype: str = "FP32") -> onnx.ModelProto:
    """Return the model sum = a + b, difference = a - b."""
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])]
    return model(
        nodes,
        [value("a", datatype, dims), value("b", datatype, dims)],
        [value("sum", datatype, dims), value("difference", datatype, dims)],
    )


def scaled(scale: float = 2.0) -> onnx.ModelProto:
    """Return the model y = x · scale, where `scale` is an input that has a default."""
    initializer = numpy_helper.from_array(np.array([scale], np.float32), "scale")
    inputs = [value("x", "FP32", ["n", 2]), value("scale", "FP32", [1])]
    return model([helper.make_node("Mul", ["x", "scale"], ["y"])], inputs, [value("y", "FP32", ["n", 2])], [initializer])


def dense(size: int, seed: int = 0) -> onnx.ModelProto:
    """Return the model y = x · W with `size`² weights in FP32."""
    weights: Any = np.random.default_rng(seed).standard_normal((size, size), dtype=np.float32)
    initializer = numpy_helper.from_array(weights, "W")
    return model(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        [value("x", "FP32", ["n", size])],
        [value("y", "FP32", ["n", size])],
        [initializer],
    )


def sequence_output() -> onnx.ModelProto:
    """Return a model with a tensor output `y` and an output `items` that is a sequence of tensors."""
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("SequenceConstruct", ["x"], ["items"])]
    items = helper.make_tensor_sequence_value_info("items", TensorProto.FLOAT, None)
    return model(nodes, [value("x", "FP32", ["n"])], [value("y", "FP32", ["n"]), items])
