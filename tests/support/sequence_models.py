"""Models for sequences: one that says what it was told, one that counts by itself, one whose state is the server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
from model_folders import write_model
from onnx import helper

CONTROLS = """
  control_input [
    { name: "START" control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }] },
    { name: "END" control [{ kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 7 ] }] },
    { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }] },
    { name: "CORRID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 }] }
  ]
"""

_TELL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = []
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            ready = bool(tensors["READY"].item())
            told.append([
                request.correlation_id(), request.flags(), ready, tensors["START"].item(), tensors["END"].item(),
                tensors["CORRID"].item(), [str(tensors[name].dtype) for name in ("START", "END", "READY", "CORRID")],
                list(tensors["CORRID"].shape), tensors["X"].item() if ready else None,
            ])
        text = np.array([[json.dumps(told).encode()]], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", text)]) for _ in requests]
"""

_COUNT = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.counts = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item()
            if x < 0:
                os._exit(3)
            name = request.correlation_id()
            if not name or request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.counts[name] = 0
            self.counts[name] += x
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full((1, 1), self.counts[name], np.float32))]))
        return responses
"""


def tell(repository: Path, strategy: str, max_batch_size: int = 4) -> Path:
    """Write the model `tell`, whose output Y is what it was told of each request of its batch, as JSON."""
    folder = write_model(
        repository,
        "tell",
        f"""
        backend: "python"
        max_batch_size: {max_batch_size}
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }}]
        output [{{ name: "Y" data_type: TYPE_STRING dims: [ 1 ] }}]
        sequence_batching {{ {strategy} max_sequence_idle_microseconds: 20000000 {CONTROLS} }}
        instance_group [{{ kind: KIND_CPU count: 1 }}]
        """,
    )
    (folder / "1" / "model.py").write_text(_TELL)
    return folder


def count(repository: Path, batching: str, instance_count: int = 1, max_batch_size: int = 4) -> Path:
    """Write the model `count`, whose Y is the sum of the sequence's X so far; a negative X ends its process.

    A position without a request has the id 0.
    """
    folder = write_model(
        repository,
        "count",
        f"""
        backend: "python"
        max_batch_size: {max_batch_size}
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }}]
        sequence_batching {{ {batching} }}
        instance_group [{{ kind: KIND_CPU count: {instance_count} }}]
        """,
    )
    (folder / "1" / "model.py").write_text(_COUNT)
    return folder


def accumulate(repository: Path, strategy: str = "direct { }", initial: str = "", config: str | None = None) -> Path:
    """Write the ONNX model `accumulate`, without code or memory of its own: Y and the next state are state + X."""
    written = f"""
    backend: "onnxruntime"
    max_batch_size: 8
    input [{{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }}]
    output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }}]
    sequence_batching {{
      {strategy}
      state [{{ input_name: "S" output_name: "S_NEXT" data_type: TYPE_FP32 dims: [ 2 ] {initial} }}]
    }}
    """
    folder = write_model(repository, "accumulate", written if config is None else config)
    tensors = {name: onnx_models.value(name, "FP32", ["batch", 2]) for name in ("X", "S", "Y", "S_NEXT")}
    nodes = [helper.make_node("Add", ["S", "X"], ["Y"]), helper.make_node("Identity", ["Y"], ["S_NEXT"])]
    made = onnx_models.model(nodes, [tensors["X"], tensors["S"]], [tensors["Y"], tensors["S_NEXT"]])
    onnx_models.save(made, folder / "1" / "model.onnx")
    return folder


class SequenceClient:
    """Asks one model with Triton's client of HTTP or gRPC (`module`), one request of a sequence at a time."""

    def __init__(self, module: Any, address: str, model: str) -> None:
        self.triton = module.InferenceServerClient(address)
        self._module = module
        self._model = model

    def ask(self, sequence_id: int | str, value: float = 1, flags: str = "", width: int = 1, **more: Any) -> Any:
        """Return Y as a list; `flags` has S for the start and E for the end."""
        tensor = self._module.InferInput("X", [1, width], "FP32")
        tensor.set_data_from_numpy(np.full((1, width), value, np.float32))
        result = self.triton.infer(
            self._model, [tensor], sequence_id=sequence_id, sequence_start="S" in flags, sequence_end="E" in flags, **more
        )
        return result.as_numpy("Y").reshape(-1).tolist()

    def told(self, sequence_id: int | str, value: float = 1, flags: str = "") -> list[list[Any]]:
        """Return what the model `tell` was told of the batch."""
        return json.loads(self.ask(sequence_id, value, flags)[0])


_COUNTDOWN = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.left = {}
        self.is_decoupled = "true" in args["model_config"].split('"decoupled":')[1][:5]

    def execute(self, requests):
        responses = []
        for request in requests:
            name = request.correlation_id()
            if not name:
                self.left[name] = 0
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.left[name] = int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item())
            self.left[name] -= 1
            is_done = self.left[name] <= 0
            if not is_done:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            text = np.array([[self.left[name], len(requests)]], np.float32)
            response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", text)])
            if self.is_decoupled:
                final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_done else 0
                request.get_response_sender().send(response, flags=final)
            else:
                responses.append(response if is_done else None)
            if is_done:
                del self.left[name]
        return None if self.is_decoupled else responses
"""


def countdown(repository: Path, strategy: str, *, is_decoupled: bool, is_iterative: bool = True) -> Path:
    """Write the model `countdown`, which runs a request X times; each Y is how often it still will, and the batch's size."""
    folder = write_model(
        repository,
        "countdown",
        f"""
        backend: "python"
        max_batch_size: 4
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }}]
        sequence_batching {{ {strategy} iterative_sequence: {str(is_iterative).lower()} }}
        model_transaction_policy {{ decoupled: {str(is_decoupled).lower()} }}
        instance_group [{{ kind: KIND_CPU }}]
        """,
    )
    (folder / "1" / "model.py").write_text(_COUNTDOWN)
    return folder
