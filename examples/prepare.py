"""Put the files of the example models in place: nothing here is committed.

    python examples/prepare.py

* `add_sub`: a tiny model made here with the `onnx` package; it has no config.pbtxt, so that Naiad completes it from the file.
* `file_type`: a real model, copied out of the PyPI package `magika` (Apache-2.0), with its labels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

MODELS = Path(__file__).resolve().parent / "models"
MAGIKA = "magika==1.0.3"
MAGIKA_FOLDER = "magika/models/standard_v3_3"


def prepare() -> None:
    """Make every file that is missing."""
    add_sub = MODELS / "add_sub" / "1" / "model.onnx"
    if not add_sub.exists():
        make_add_sub(add_sub)
    file_type = MODELS / "file_type"
    if not (file_type / "1" / "model.onnx").exists() or not (file_type / "labels.txt").exists():
        copy_magika(file_type)


def make_add_sub(path: Path) -> None:
    """Write a model with SUM = A + B and DIFFERENCE = A - B, all FP32[batch, 4]."""
    shape = ["batch", 4]

    def tensor(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])],
        "add_sub",
        [tensor("A"), tensor("B")],
        [tensor("SUM"), tensor("DIFFERENCE")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    put(path, model.SerializeToString())


def copy_magika(folder: Path) -> None:
    """Take the model and its labels out of the package's wheel; nothing of the package is installed or run."""
    with tempfile.TemporaryDirectory() as download:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, MAGIKA]
        subprocess.run(command, check=True)
        wheel = next(Path(download).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            model = archive.read(f"{MAGIKA_FOLDER}/model.onnx")
            labels = json.loads(archive.read(f"{MAGIKA_FOLDER}/config.min.json"))["target_labels_space"]
    put(folder / "labels.txt", "".join(f"{label}\n" for label in labels).encode())
    put(folder / "1" / "model.onnx", model)


def put(path: Path, content: bytes) -> None:
    """Write a file in one step: one that is there is complete, whoever else prepares at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    print(f"made {path.relative_to(MODELS.parent)}")


if __name__ == "__main__":
    prepare()
