"""Requests that are put to Naiad and to the C++ Triton alike."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def tensor(name: str = "X", shape: Any = (1, 2), datatype: str = "FP32", data: Any = (1, 2)) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(model: str, *inputs: Any, **more: Any) -> Request:
    return Request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": inputs, **more}).encode())


def binary(model: str, document: Any, blob: bytes, **headers: str) -> Request:
    text = json.dumps(document).encode()
    fields = {"Inference-Header-Content-Length": str(len(text)), **headers}
    return Request("POST", f"/v2/models/{model}/infer", text + blob, fields)


def generate(body: Any, end: str = "generate") -> Request:
    return Request("POST", f"/v2/models/gen/{end}", json.dumps(body).encode())


FLOATS = struct.pack("<2f", 1, 2)
BLOB_INPUT = {"name": "X", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
X = tensor()
JSON_X = json.dumps({"inputs": [X]}).encode()
WORDS = tensor(datatype="BYTES", data=["a", "b"])
AB = (tensor("A"), tensor("B", datatype="INT32"))
CLASSES = tensor(shape=[1, 4], data=[0.1, 3.3, 3.4, -2])

_PATHS = {
    f"{method} {path}": Request(method, path, b"{}" if method == "POST" else b"")
    for path in (
        "/", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models/echo", "/v2/models/echo/ready", "/v2/models/echo/",
        "/v2/models/nobody", "/v2/models/nobody/config", "/v2/models/echo/versions/9", "/v2/models/nobody/stats",
        "/v2/models/echo/versions/9/stats", "/v2/models/two", "/v2/models/gen", "/v2/models/img", "/v2/models/echo/versions/x",
        "/v2/repository/index/", "/v2/nothing",
    )
    for method in ("GET", "POST")
}  # fmt: skip

_INFER = {
    "json": infer("echo", X),
    "id": infer("echo", X, id="7"),
    "batch": infer("echo", tensor(shape=[2, 2], data=[[1, 2], [3, 4]])),
    "no batch": infer("echo0", tensor(shape=[2])),
    "two": infer("two", *AB),
    "two turned": infer("two", *AB[::-1]),
    "one output": infer("two", *AB, outputs=[{"name": "YB"}]),
    "binary in": binary("echo", {"inputs": [BLOB_INPUT]}, FLOATS),
    "binary out": infer("echo", X, parameters={"binary_data_output": True}),
    "listed output stays json": infer("echo", X, outputs=[{"name": "Y"}], parameters={"binary_data_output": True}),
    "mixed forms": infer("two", *AB, outputs=[{"name": "YA", "parameters": {"binary_data": True}}, {"name": "YB"}]),
    "raw": Request("POST", "/v2/models/echo/infer", FLOATS, {"Inference-Header-Content-Length": "0"}),
    "raw string": Request("POST", "/v2/models/echo_bytes/infer", b"hello", {"Inference-Header-Content-Length": "0"}),
    "strings": infer("echo_bytes", WORDS),
    "strings escaped": infer("echo_bytes", tensor(datatype="BYTES", data=["\u00e9\U0001f600", '"\\\n\t\u0001'])),
    "booleans": infer("echo_bool", tensor(datatype="BOOL", data=[True, False])),
    "numbers": infer("echo", tensor(shape=[1, 6], data=[0, -0.0, 1e10, 1e-10, 1.1, 123456789])),
    "non-finite": Request("POST", "/v2/models/echo/infer", JSON_X.replace(b"[1, 2]}", b"[NaN, -Infinity]}")),
    "empty tensor": infer("echo", tensor(shape=[1, 0], data=[])),
    "empty binary": infer("echo", tensor(shape=[1, 0], data=[]), parameters={"binary_data_output": True}),
    "custom parameters": infer("echo", X, parameters={"s": "x", "i": 1, "f": 1.5, "b": True}),
    "members that are not known": infer("echo", X, other=1),
    "BOM": Request("POST", "/v2/models/echo/infer", b"\xef\xbb\xbf" + JSON_X),
    "gzip": Request("POST", "/v2/models/echo/infer", gzip.compress(JSON_X, mtime=0), {"Content-Encoding": "gzip"}),
    "deflate": Request("POST", "/v2/models/echo/infer", zlib.compress(JSON_X), {"Content-Encoding": "deflate"}),
    "gzip out": Request("POST", "/v2/models/echo/infer", JSON_X, {"Accept-Encoding": "gzip"}),
    "form": Request("POST", "/v2/models/echo/infer", JSON_X, {"Content-Type": "application/x-www-form-urlencoded"}),
    "classes": infer("cls", CLASSES, outputs=[{"name": "Y", "parameters": {"classification": 3}}]),
    "all classes": infer("cls", CLASSES, outputs=[{"name": "Y", "parameters": {"classification": 9}}]),
    "classes 0": infer("cls", CLASSES, outputs=[{"name": "Y", "parameters": {"classification": 0}}]),
}

_REFUSED = {
    "no json": Request("POST", "/v2/models/echo/infer", b"{"),
    "no inputs": Request("POST", "/v2/models/echo/infer", b"{}"),
    "unknown model": infer("nobody", X),
    "unknown input": infer("echo", tensor("Z")),
    "unknown output": infer("echo", X, outputs=[{"name": "Z"}]),
    "missing input": infer("two", AB[0]),
    "too many inputs": infer("two", *AB, tensor("C")),
    "input twice": infer("echo", X, X),
    "datatype": infer("echo", tensor(datatype="INT32")),
    "datatype unknown": infer("echo", tensor(datatype="FLOAT")),
    "rank": infer("img", tensor(shape=[3, 4, 1], data=[0] * 12)),
    "dimension": infer("img", tensor(shape=[1, 4, 3, 1], data=[0] * 12)),
    "batch too large": infer("echo", tensor(shape=[9, 1], data=[0] * 9)),
    "batch of 0": infer("echo", tensor(shape=[0, 2], data=[])),
    "batches differ": infer("two", tensor("A"), tensor("B", [2, 1], "INT32")),
    "too few values": infer("echo", tensor(data=[1])),
    "too many values": infer("echo", tensor(data=[1, 2, 3])),
    "text for number": infer("echo", tensor(data=["a", "b"])),
    "float for integer": infer("echo_int32", tensor(datatype="INT32", data=[1.5, 2])),
    "number for boolean": infer("echo_bool", tensor(datatype="BOOL", data=[1, 0])),
    "overflow": infer("echo_int32", tensor(datatype="INT32", data=[2**40, 0])),
    "negative shape": infer("echo", tensor(shape=[-1, 2])),
    "text shape": infer("echo", tensor(shape="x")),
    "id not text": infer("echo", X, id=7),
    "reserved parameter": infer("echo", X, parameters={"triton_x": 1}),
    "null parameter": infer("echo", X, parameters={"x": None}),
    "negative priority": infer("echo", X, parameters={"priority": -1}),
    "no data": infer("echo", {"name": "X", "shape": [1, 2], "datatype": "FP32"}),
    "two sources": infer("echo", {**BLOB_INPUT, "data": [1, 2]}),
    "short blob": binary("echo", {"inputs": [BLOB_INPUT]}, FLOATS[:5]),
    "long blob": binary("echo", {"inputs": [BLOB_INPUT]}, FLOATS + b"x"),
    "blob and shape": binary("echo", {"inputs": [{**BLOB_INPUT, "shape": [1, 3]}]}, FLOATS),
    "header too long": Request("POST", "/v2/models/echo/infer", JSON_X, {"Inference-Header-Content-Length": "9999"}),
    "header negative": Request("POST", "/v2/models/echo/infer", JSON_X, {"Inference-Header-Content-Length": "-1"}),
    "raw for two inputs": Request("POST", "/v2/models/two/infer", FLOATS, {"Inference-Header-Content-Length": "0"}),
    "raw that does not fit": Request("POST", "/v2/models/echo/infer", FLOATS[:7], {"Inference-Header-Content-Length": "0"}),
    "coding": Request("POST", "/v2/models/echo/infer", JSON_X, {"Content-Encoding": "br"}),
    "broken gzip": Request("POST", "/v2/models/echo/infer", JSON_X, {"Content-Encoding": "gzip"}),
    "classes of booleans": infer(
        "echo_bool", tensor(datatype="BOOL", data=[True, False]), outputs=[{"name": "Y", "parameters": {"classification": 1}}]
    ),
}

_GENERATE = {
    "generate": generate({"text_input": "hi"}),
    "generate id": generate({"text_input": "hi", "id": "7"}),
    "generate list": generate({"text_input": ["hi"], "stop_words": ["a", "b"]}),
    "generate bias": generate({"text_input": "hi", "bias": [1, 2, 3, 4]}),
    "generate parameters": generate({"text_input": "hi", "parameters": {"x": 1, "stop_words": "a"}}),
    "generate stream": generate({"text_input": "hi"}, "generate_stream"),
    "generate bad bias": generate({"text_input": "hi", "bias": [1, 2, 3]}),
    "generate number for text": generate({"text_input": 7}),
    "generate null": generate({"text_input": None}),
    "generate nothing": generate({}),
    "generate no json": Request("POST", "/v2/models/gen/generate", b"{"),
    "generate two for one": generate({"text_input": ["a", "b"]}),
    "generate gzip": Request("POST", "/v2/models/gen/generate", gzip.compress(b"{}"), {"Content-Encoding": "gzip"}),
    "generate empty list": generate({"text_input": "hi", "stop_words": []}),
    "generate unknown model": Request("POST", "/v2/models/nobody/generate", b"{}"),
}

_ADMIN = {
    "load": Request("POST", "/v2/repository/models/echo/load", b"{}"),
    "unload": Request("POST", "/v2/repository/models/echo/unload"),
    "load in repository": Request("POST", "/v2/repository/r/models/echo/load"),
    "index": Request("POST", "/v2/repository/index"),
    "index ready": Request("POST", "/v2/repository/index", b'{"ready":true}'),
    "index bad": Request("POST", "/v2/repository/index", b'{"ready":1}'),
    "log settings empty": Request("POST", "/v2/logging"),
    "log settings file": Request("POST", "/v2/logging", b'{"log_file":"x"}'),
    "log settings format": Request("POST", "/v2/logging", b'{"log_format":"x"}'),
    "log settings type": Request("POST", "/v2/logging", b'{"log_info":1}'),
    "log settings": Request("POST", "/v2/logging", b"{}"),
}

REQUESTS: dict[str, Request] = {**_PATHS, **_INFER, **_REFUSED, **_GENERATE, **_ADMIN}
