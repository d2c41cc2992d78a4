"""Models and gRPC requests that are put to Naiad and to the C++ Triton alike.

Owns what is asked, not what may differ. `ASKS` are unary calls, `STREAMS` what is sent on one stream.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from http_models import CONFIG_TYPES, Pair, write_identity
from model_folders import write_model
from triton_models import MODEL_PY
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

# Python models of the C++ Triton can't read BF16.
DATATYPES = tuple(name for name in CONFIG_TYPES if name != "BF16")
_REP_PY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for index in range(int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([index], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_FAIL_PY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("no such thing", pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""
_NUMBER = '{{ name: "{0}" data_type: TYPE_INT32 dims: [1] }}'.format


def write_for_naiad(repository: Path) -> Path:
    """Write the models, with Naiad's identity backend."""
    for datatype in DATATYPES:
        write_identity(repository, f"echo_{datatype.lower()}", Pair(datatype=datatype))
    for name in ("echo", "counted", "fresh"):
        write_identity(repository, name)
    write_identity(repository, "echo0", max_batch_size=0)
    write_identity(repository, "img", Pair(dims="3, 4, -1"))
    write_identity(repository, "two", Pair("A", "YA"), Pair("B", "YB", "INT32"))
    folder = write_identity(repository, "cls", Pair(dims="4", labels="labels.txt"))
    (folder / "labels.txt").write_text("zero\none\ntwo\n")
    for name, program, more in (
        ("rep", _REP_PY, "model_transaction_policy { decoupled: true }"),
        ("fail", _FAIL_PY, ""),
    ):
        config = f'backend: "python" input [{_NUMBER("N")}] output [{_NUMBER("Y")}] {more}'
        (write_model(repository, name, config) / "1" / "model.py").write_text(program)
    return repository


def write_for_triton(repository: Path) -> Path:
    """Write the same models, with Triton's Python backend in place of the identity."""
    write_for_naiad(repository)
    for config in repository.glob("*/config.pbtxt"):
        text = config.read_text()
        if 'backend: "identity"' in text:
            config.write_text(text.replace('backend: "identity"', 'backend: "python"'))
            (config.parent / "1" / "model.py").write_text(MODEL_PY)
    return repository


@dataclass(frozen=True)
class Ask:
    """One unary call."""

    rpc: str
    message: Message
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Stream:
    """What is sent on one stream, and then the client's half of it is closed."""

    messages: tuple[Message, ...]
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Input:
    """One input; `raw` is its entry of raw_input_contents, `typed` its contents."""

    name: str = "X"
    shape: Sequence[int] = (1, 2)
    datatype: str = "FP32"
    raw: bytes | None = None
    typed: tuple[tuple[str, Sequence[Any]], ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()


def set_parameters(target: Any, parameters: Sequence[tuple[str, Any]]) -> None:
    """Set parameters; a pair (kind, value) has that kind, a plain value its own, and None is a parameter without a value."""
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    for key, value in parameters:
        if value is None:
            target[key].SetInParent()
            continue
        kind, plain = value if isinstance(value, tuple) else (kinds[type(value)], value)
        setattr(target[key], kind, plain)


def infer(model: str, *inputs: Input, outputs: Sequence[Any] = (), parameters: Any = (), **more: Any) -> pb.ModelInferRequest:
    """Return a request. `outputs` are names, or pairs of a name and parameters; `more` are fields of the message."""
    request = pb.ModelInferRequest(model_name=model, **more)
    set_parameters(request.parameters, parameters)
    for item in inputs:
        made = request.inputs.add(name=item.name, shape=item.shape, datatype=item.datatype)
        set_parameters(made.parameters, item.parameters)
        for field, values in item.typed:
            getattr(made.contents, field).extend(values)
        if item.raw is not None:
            request.raw_input_contents.append(item.raw)
    for output in outputs:
        name, settings = output if isinstance(output, tuple) else (output, ())
        set_parameters(request.outputs.add(name=name).parameters, settings)
    return request


FLOATS = struct.pack("<2f", 1, 2)
X = Input(raw=FLOATS)
TYPED_X = Input(typed=(("fp32_contents", (1, 2)),))
CLASSES = Input(shape=(1, 4), raw=struct.pack("<4f", 0.1, 3.3, 3.4, -2))
REGION = (("shared_memory_region", "nowhere"), ("shared_memory_byte_size", 8))

_VALUES = {"BOOL": [True, False], "BYTES": [b"a", b"\x00\xff"], "FP16": [1.5, -2], "FP32": [1.5, -0.0], "FP64": [1e300, 2]}
_NUMPY = {"BOOL": np.bool_, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
_FIELDS = {
    "BOOL": "bool_contents", "BYTES": "bytes_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"), "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"), "UINT64": "uint64_contents",
}  # fmt: skip


def _of(datatype: str, form: str) -> pb.ModelInferRequest:
    values = _VALUES.get(datatype, [1, 100])
    if form == "typed":
        item = Input(datatype=datatype, typed=((_FIELDS[datatype], values),))
    elif datatype == "BYTES":
        item = Input(datatype=datatype, raw=serialize_byte_tensor(np.array(values, object)).item())
    else:
        item = Input(datatype=datatype, raw=np.array(values, _NUMPY.get(datatype, datatype.lower())).tobytes())
    return infer(f"echo_{datatype.lower()}", item, id=datatype)


_EVERY_DATATYPE = {
    f"{datatype} {form}": _of(datatype, form)
    for datatype in DATATYPES
    for form in ("raw", "typed")
    if form == "raw" or datatype in _FIELDS
}
_EVERY_WRONG_FIELD = {
    f"{field} for {datatype}": infer(
        f"echo_{datatype.lower()}", Input(datatype=datatype, typed=((field, _VALUES.get(kind, [1, 100])),))
    )
    for datatype in ("INT8", "UINT32", "INT64", "BOOL", "FP16", "FP32", "BYTES")
    for field, kind in {field: kind for kind, field in _FIELDS.items()}.items()
    if field != _FIELDS.get(datatype)
}
_GOOD = {
    "id": infer("echo", X, id="7"),
    "no batch": infer("echo0", Input(shape=(2,), raw=FLOATS)),
    "version": infer("echo", X, model_version="1"),
    "two raw": infer("two", Input("A", raw=FLOATS), Input("B", datatype="INT32", raw=FLOATS)),
    "two turned": infer("two", Input("B", datatype="INT32", raw=FLOATS), Input("A", raw=FLOATS)),
    "two typed": infer("two", Input("A", typed=(("fp32_contents", (1, 2)),)),
                       Input("B", datatype="INT32", typed=(("int_contents", (1, 2)),))),
    "one output": infer("two", Input("A", raw=FLOATS), Input("B", datatype="INT32", raw=FLOATS), outputs=["YB"]),
    "output twice": infer("echo", X, outputs=["Y", "Y"]),
    "empty raw": infer("echo", Input(shape=(1, 0), raw=b"")),
    "surplus raw": infer("echo", X, raw_input_contents=[FLOATS, FLOATS[:3]]),
    "custom parameters": infer("echo", X, parameters=(("s", "x"), ("i", 1), ("f", 1.5), ("b", True))),
    "negative low bytes": infer("echo_int8", Input(datatype="INT8", typed=(("int_contents", (-1, 300)),))),
    "classes": infer("cls", CLASSES, outputs=[("Y", (("classification", 3),))]),
    "all classes": infer("cls", CLASSES, outputs=[("Y", (("classification", 9),))]),
    "priority": infer("echo", X, parameters=(("priority", 1), ("timeout", 1))),
    "unsigned priority": infer("echo", X, parameters=(("priority", ("uint64_param", 1)),)),
}  # fmt: skip
_REFUSED = {
    "nothing": pb.ModelInferRequest(),
    "unknown model": infer("nobody", X),
    "unknown version": infer("echo", X, model_version="9"),
    "version text": infer("echo", X, model_version="x"),
    "version 0": infer("echo", X, model_version="0"),
    "version negative": infer("echo", X, model_version="-1"),
    "version too large": infer("echo", X, model_version="99999999999999999999"),
    "no inputs": infer("echo"),
    "unknown input": infer("echo", Input("Z", raw=FLOATS)),
    "unknown output": infer("echo", X, outputs=["Z"]),
    "missing input": infer("two", Input("A", raw=FLOATS)),
    "too many inputs": infer("echo", X, Input("Z", raw=FLOATS)),
    "input twice": infer("echo", X, X),
    "datatype": infer("echo", Input(datatype="INT32", raw=FLOATS)),
    "datatype unknown": infer("echo", Input(datatype="FLOAT", raw=FLOATS)),
    "datatype empty": infer("echo", Input(datatype="", raw=FLOATS)),
    "rank": infer("img", Input(shape=(3, 4, 1), raw=bytes(48))),
    "dimension": infer("img", Input(shape=(1, 4, 3, 1), raw=bytes(48))),
    "no shape": infer("echo", Input(shape=(), raw=FLOATS)),
    "no shape no batch": infer("echo0", Input(shape=(), raw=FLOATS)),
    "batch too large": infer("echo", Input(shape=(9, 1), raw=bytes(36))),
    "batch of 0": infer("echo", Input(shape=(0, 2), raw=b"")),
    "batches differ": infer("two", Input("A", raw=FLOATS), Input("B", (2, 1), "INT32", raw=FLOATS)),
    "negative shape": infer("echo", Input(shape=(-1, 2), raw=FLOATS)),
    "negative dimension": infer("echo", Input(shape=(1, -1), raw=FLOATS)),
    "short raw": infer("echo", Input(raw=FLOATS[:5])),
    "long raw": infer("echo", Input(raw=FLOATS + b"x")),
    "few typed": infer("echo", Input(typed=(("fp32_contents", (1,)),))),
    "many typed": infer("echo", Input(typed=(("fp32_contents", (1, 2, 3)),))),
    "typed and raw": infer("two", Input("A", typed=(("fp32_contents", (1, 2)),)), Input("B", datatype="INT32", raw=FLOATS)),
    "two fields": infer("echo", Input(typed=(("fp32_contents", (1, 2)), ("int_contents", (1, 2))))),
    "no data": infer("echo", Input()),
    "too few raw": infer("two", Input("A", raw=FLOATS), Input("B", datatype="INT32")),
    "strings cut off": infer("echo_bytes", Input(datatype="BYTES", raw=struct.pack("<I", 9) + b"abc")),
    "strings too few": infer("echo_bytes", Input(datatype="BYTES", raw=struct.pack("<I", 1) + b"a")),
    "strings too many": infer("echo_bytes", Input(datatype="BYTES", raw=(struct.pack("<I", 1) + b"a") * 3)),
    "region": infer("echo", Input(parameters=REGION)),
    "region and raw": infer("echo", Input(parameters=REGION, raw=FLOATS)),
    "region and typed": infer("echo", Input(parameters=REGION, typed=(("fp32_contents", (1, 2)),))),
    "region without size": infer("echo", Input(parameters=REGION[:1])),
    "size without region": infer("echo", Input(parameters=REGION[1:])),
    "region of a number": infer("echo", Input(parameters=(("shared_memory_region", 1),))),
    "region for an output": infer("echo", X, outputs=[("Y", REGION)]),
    "region and classes": infer("echo", X, outputs=[("Y", (*REGION, ("classification", 1)))]),
    "classes of 0": infer("cls", CLASSES, outputs=[("Y", (("classification", 0),))]),
    "classes of -1": infer("cls", CLASSES, outputs=[("Y", (("classification", -1),))]),
    "classes as text": infer("cls", CLASSES, outputs=[("Y", (("classification", "1"),))]),
    "classes of booleans": infer("echo_bool", Input(datatype="BOOL", raw=b"\1\0"), outputs=[("Y", (("classification", 1),))]),
    "reserved parameter": infer("echo", X, parameters=(("triton_x", 1),)),
    "unsigned parameter": infer("echo", X, parameters=(("mine", ("uint64_param", 1)),)),
    "parameter without value": infer("echo", X, parameters=(("mine", None),)),
    "priority negative": infer("echo", X, parameters=(("priority", -1),)),
    "priority as text": infer("echo", X, parameters=(("priority", "1"),)),
    "timeout as text": infer("echo", X, parameters=(("timeout", "1"),)),
    "timeout unsigned": infer("echo", X, parameters=(("timeout", ("uint64_param", 1)),)),
    "sequence id unsigned": infer("echo", X, parameters=(("sequence_id", ("uint64_param", 1)),)),
    "sequence start as number": infer("echo", X, parameters=(("sequence_start", 1),)),
    "decoupled": infer("rep", Input("N", (1,), "INT32", typed=(("int_contents", (1,)),))),
    "error of the model": infer("fail", Input("N", (1,), "INT32", typed=(("int_contents", (1,)),))),
}
_OTHERS = {
    "live": Ask("ServerLive", pb.ServerLiveRequest()),
    "ready": Ask("ServerReady", pb.ServerReadyRequest()),
    "model ready": Ask("ModelReady", pb.ModelReadyRequest(name="echo")),
    "model ready unknown": Ask("ModelReady", pb.ModelReadyRequest(name="nobody")),
    "model ready version": Ask("ModelReady", pb.ModelReadyRequest(name="echo", version="9")),
    "model ready bad version": Ask("ModelReady", pb.ModelReadyRequest(name="echo", version="x")),
    "metadata": Ask("ServerMetadata", pb.ServerMetadataRequest()),
    **{f"metadata of {name}": Ask("ModelMetadata", pb.ModelMetadataRequest(name=name))
       for name in ("echo", "echo0", "two", "cls", "img", "rep", "echo_bytes", "nobody", "")},
    "metadata of a version": Ask("ModelMetadata", pb.ModelMetadataRequest(name="echo", version="1")),
    "metadata of no version": Ask("ModelMetadata", pb.ModelMetadataRequest(name="echo", version="9")),
    "metadata of a bad version": Ask("ModelMetadata", pb.ModelMetadataRequest(name="echo", version="x")),
    **{f"config of {name}": Ask("ModelConfig", pb.ModelConfigRequest(name=name))
       for name in ("echo0", "two", "cls", "rep", "nobody", "")},
    "config of no version": Ask("ModelConfig", pb.ModelConfigRequest(name="echo", version="9")),
    "statistics of nobody": Ask("ModelStatistics", pb.ModelStatisticsRequest(name="nobody")),
    "statistics of fresh": Ask("ModelStatistics", pb.ModelStatisticsRequest(name="fresh")),
    "statistics of no version": Ask("ModelStatistics", pb.ModelStatisticsRequest(name="echo", version="9")),
    "index": Ask("RepositoryIndex", pb.RepositoryIndexRequest()),
    "index ready": Ask("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)),
    "index of a repository": Ask("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="r")),
    "load": Ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="echo")),
    "load in a repository": Ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="r", model_name="echo")),
    "load with a parameter": Ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(
        model_name="echo", parameters={"x": pb.ModelRepositoryParameter(string_param="y")})),
    "load with a number for config": Ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(
        model_name="echo", parameters={"config": pb.ModelRepositoryParameter(int64_param=1)})),
    "load with text for a file": Ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(
        model_name="echo", parameters={"file:1/a": pb.ModelRepositoryParameter(string_param="y")})),
    "unload": Ask("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="echo")),
    "unload in a repository": Ask("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(repository_name="r")),
    "system status": Ask("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
    "system status of nobody": Ask("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="r")),
    "system register": Ask("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(
        name="r", key="/naiad-none", byte_size=8)),
    "system register nothing": Ask("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="r")),
    "system unregister nobody": Ask("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="r")),
    "system unregister all": Ask("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest()),
    "cuda status": Ask("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
    "cuda status of nobody": Ask("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name="r")),
    "cuda register": Ask("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(
        name="r", raw_handle=bytes(64), byte_size=8)),
    "cuda unregister": Ask("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name="r")),
    "log settings": Ask("LogSettings", pb.LogSettingsRequest()),
    "log settings unknown": Ask("LogSettings", pb.LogSettingsRequest(
        settings={"x": pb.LogSettingsRequest.SettingValue(bool_param=True)})),
    "log settings type": Ask("LogSettings", pb.LogSettingsRequest(
        settings={"log_info": pb.LogSettingsRequest.SettingValue(uint32_param=1)})),
    "log settings file": Ask("LogSettings", pb.LogSettingsRequest(
        settings={"log_file": pb.LogSettingsRequest.SettingValue(string_param="x")})),
    "log settings format": Ask("LogSettings", pb.LogSettingsRequest(
        settings={"log_format": pb.LogSettingsRequest.SettingValue(string_param="x")})),
}  # fmt: skip

_INFERS = {**_EVERY_DATATYPE, **_EVERY_WRONG_FIELD, **_GOOD, **_REFUSED}
ASKS: dict[str, Ask] = {**{name: Ask("ModelInfer", message) for name, message in _INFERS.items()}, **_OTHERS}

_EMPTY_FINAL = (("triton_enable_empty_final_response", True),)


def _rep(count: int, **more: Any) -> pb.ModelInferRequest:
    return infer("rep", Input("N", (1,), "INT32", typed=(("int_contents", (count,)),)), **more)


_FAIL = infer("fail", Input("N", (1,), "INT32", typed=(("int_contents", (1,)),)), id="f")
_ENDS = (("triton_grpc_error", "true"),)
STREAMS: dict[str, Stream] = {
    "nothing": Stream(()),
    "ordinary": Stream((infer("echo", X, id="a"), infer("echo", TYPED_X, id="b"))),
    "decoupled": Stream((_rep(3, id="r"),)),
    "decoupled, empty final": Stream((_rep(3, id="r", parameters=_EMPTY_FINAL),)),
    "decoupled, version, empty final": Stream((_rep(1, id="r", model_version="1", parameters=_EMPTY_FINAL),)),
    "decoupled, none": Stream((_rep(0, id="r"),)),
    "decoupled, none, empty final": Stream((_rep(0, id="r", parameters=_EMPTY_FINAL),)),
    "ordinary, empty final": Stream((infer("echo", X, id="a", parameters=_EMPTY_FINAL),)),
    "unknown model between": Stream((infer("echo", X, id="a"), infer("nobody", X, id="b"), infer("echo", X, id="c"))),
    "wrong shape between": Stream((infer("echo", X, id="a"), infer("echo", Input(shape=(1, 3), raw=FLOATS), id="b"), _rep(1))),
    "error of the model": Stream((_FAIL, infer("echo", X, id="c"))),
    "error of the model ends": Stream((_FAIL,), _ENDS),
    "unknown model doesn't end": Stream((infer("nobody", X, id="b"), infer("echo", X, id="c")), _ENDS),
    "bad version": Stream((infer("echo", X, id="b", model_version="x"),)),
    "reserved parameter": Stream((infer("echo", X, id="b", parameters=(("triton_x", 1),)),)),
}


@dataclass(frozen=True)
class Said:
    """What a server answered: its messages, the name of the status, and its text."""

    status: str
    text: str
    messages: tuple[Message, ...] = ()


def ask(channel: grpc.Channel, asked: Ask) -> Said:
    """Make a unary call."""
    rpc = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), asked.rpc)
    try:
        return Said("OK", "", (rpc(asked.message, metadata=asked.metadata, timeout=10),))
    except grpc.RpcError as error:
        return Said(error.code().name, error.details())


def stream(channel: grpc.Channel, asked: Stream) -> Said:
    """Send everything on one stream and read it to its end."""
    rpc = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer
    call = rpc(iter(asked.messages), metadata=asked.metadata, timeout=10)
    found: list[Message] = []
    with contextlib.suppress(grpc.RpcError):
        found.extend(call)
    return Said(call.code().name, call.details(), tuple(found))
