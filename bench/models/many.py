"""A repository of many small ONNX models, each with answers of its own; as a program it writes one: FOLDER COUNT."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def write_many(repository: Path, count: int) -> list[str]:
    """Write `count` models `m0000` … without a config, y = x + number with x FP32 [n, 4]; return their names."""
    names = [f"m{number:04d}" for number in range(count)]
    for number, name in enumerate(names):
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(_add(number))
    return names


def _add(number: int) -> bytes:
    shape: list[str | int | None] = ["n", 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "number"], ["y"])],
        "add",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.array([number], np.float32), "number")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return made.SerializeToString()


if __name__ == "__main__":
    write_many(Path(sys.argv[1]), int(sys.argv[2]))
