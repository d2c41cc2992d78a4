"""Models that gRPC is tested with, and requests to them as protobuf messages.

`echo` answers X; `slow` and `single` (two instances and one) sleep MS milliseconds, count what they ran in `ran.txt` and answer
X; `poll` sleeps as they do, but looks whether it is cancelled and notes it in `cancelled.txt`; `rep` is decoupled and sends N
responses whose first number counts from 0, of SIZE numbers each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from model_folders import write_model
from tritonclient.grpc import service_pb2

_SLOW = """
import time
import pathlib
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(args["model_repository"])

    def note(self, name, text):
        with (self.folder / name).open("a") as file:
            file.write(text)

    def execute(self, requests):
        self.note("ran.txt", "x" * len(requests))
        time.sleep(max(int(pb_utils.get_input_tensor_by_name(r, "MS").as_numpy().max()) for r in requests) / 1000)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())])
                for r in requests]
"""
_POLL = (
    _SLOW
    + """
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.note("ran.txt", "x")
        end = time.monotonic() + pb_utils.get_input_tensor_by_name(request, "MS").as_numpy().max() / 1000
        while time.monotonic() < end:
            time.sleep(0.02)
            if request.is_cancelled():
                self.note("cancelled.txt", "x")
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])
"""
)
_REP = """
import threading
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request, request.get_response_sender())).start()

    def answer(self, request, sender):
        count, size = (int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0]) for name in ("N", "SIZE"))
        for index in range(count):
            if request.is_cancelled():
                break
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full(size, index, np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_ROW = '{{ name: "{0}" data_type: TYPE_FP32 dims: [-1] }}'.format
_NUMBER = '{{ name: "{0}" data_type: TYPE_INT32 dims: [1] }}'.format
_ECHO = f'backend: "identity" max_batch_size: 8 input [{_ROW("X")}] output [{_ROW("Y")}]'
_SLOW_CONFIG = f'backend: "python" max_batch_size: 8 input [{_ROW("X")}, {_NUMBER("MS")}] output [{_ROW("Y")}]'
_REP_CONFIG = (
    f'backend: "python" input [{_NUMBER("N")}, {_NUMBER("SIZE")}] output [{{ name: "Y" data_type: TYPE_INT32 dims: [-1] }}] '
    "model_transaction_policy { decoupled: true }"
)


def write_grpc_models(repository: Path, *names: str) -> Path:
    """Write the models of these names, all without any; return the repository."""
    for name in names or ("echo", "slow", "single", "poll", "rep"):
        if name == "echo":
            write_model(repository, name, _ECHO)
            continue
        count = 2 if name == "slow" else 1
        config = _REP_CONFIG if name == "rep" else f"{_SLOW_CONFIG} instance_group [{{ count: {count} kind: KIND_CPU }}]"
        program = {"rep": _REP, "poll": _POLL}.get(name, _SLOW)
        (write_model(repository, name, config) / "1" / "model.py").write_text(program)
    return repository


def noted(repository: Path, model: str, name: str = "ran.txt") -> int:
    """Return how often a model has noted something."""
    path = repository / model / name
    return len(path.read_text()) if path.exists() else 0


def request(model: str, call_id: str = "", **inputs: np.ndarray) -> service_pb2.ModelInferRequest:
    """Return a request with its tensors, FP32 or INT32, in raw form."""
    made = service_pb2.ModelInferRequest(model_name=model, id=call_id)
    for name, array in inputs.items():
        datatype = {"float32": "FP32", "int32": "INT32"}[str(array.dtype)]
        made.inputs.add(name=name, datatype=datatype, shape=array.shape)
        made.raw_input_contents.append(array.tobytes())
    return made


def echo_request(*values: float, call_id: str = "") -> service_pb2.ModelInferRequest:
    return request("echo", call_id, X=np.array([values], np.float32))


def slow_request(ms: int, model: str = "slow", value: float = 1, call_id: str = "") -> service_pb2.ModelInferRequest:
    return request(model, call_id, X=np.array([[value]], np.float32), MS=np.array([[ms]], np.int32))


def rep_request(count: int, size: int = 1, call_id: str = "") -> service_pb2.ModelInferRequest:
    """Return a request to `rep` that asks for an empty final response."""
    made = request("rep", call_id, N=np.array([count], np.int32), SIZE=np.array([size], np.int32))
    made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made
