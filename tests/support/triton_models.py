"""The same identity models for Naiad and for the C++ Triton, whose identity is a Python model."""

from __future__ import annotations

from pathlib import Path

from http_models import Pair, write_identity

MODEL_PY = """
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.pairs = [(source["name"], target["name"]) for source, target in zip(config["input"], config["output"])]

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(request)) for request in requests]

    def outputs(self, request):
        found = [(target, pb_utils.get_input_tensor_by_name(request, source)) for source, target in self.pairs]
        return [pb_utils.Tensor(target, tensor.as_numpy()) for target, tensor in found if tensor is not None]
"""


def write_for_naiad(repository: Path) -> Path:
    """Write the models with Naiad's identity backend."""
    write_identity(repository, "echo")
    write_identity(repository, "echo0", max_batch_size=0)
    write_identity(repository, "echo_bytes", Pair(datatype="BYTES"))
    write_identity(repository, "echo_int32", Pair(datatype="INT32"))
    write_identity(repository, "echo_bool", Pair(datatype="BOOL"))
    write_identity(repository, "img", Pair(dims="3, 4, -1"))
    write_identity(repository, "two", Pair("A", "YA"), Pair("B", "YB", "INT32"))
    write_identity(
        repository,
        "gen",
        Pair("text_input", "text_output", "BYTES", "1"),
        Pair("stop_words", "stop_words_seen", "BYTES", "-1", is_optional=True),
        Pair("bias", "bias_seen", "FP32", "-1, 2", is_optional=True),
    )
    folder = write_identity(repository, "cls", Pair(dims="4", labels="labels.txt"))
    (folder / "labels.txt").write_text("zero\none\ntwo\n")
    return repository


def write_for_triton(repository: Path) -> Path:
    """Write the same models with Triton's Python backend."""
    write_for_naiad(repository)
    for config in repository.glob("*/config.pbtxt"):
        config.write_text(config.read_text().replace('backend: "identity"', 'backend: "python"'))
        (config.parent / "1" / "model.py").write_text(MODEL_PY)
    return repository
