"""Makes the body of an inference request and reads the answer, in the two forms that HTTP has: binary tensors and JSON.

Owns the bytes; those of gRPC are in bench/grpc. Written without the server's own codecs, so that both servers are checked by
the same outside reader.

Binary form: a JSON header, whose length the header `Inference-Header-Content-Length` says, then the bytes of each tensor.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from bench.errors import BenchError

Array = np.ndarray[Any, Any]
HEADER_LENGTH = "Inference-Header-Content-Length"
DTYPES = {"FP32": np.dtype(np.float32), "INT32": np.dtype(np.int32)}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}


class Form(Enum):
    """How the tensors travel: the first two over HTTP, the last one in protobuf messages."""

    BINARY = "binary"
    JSON = "json"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One request, ready to be sent over and over: the path to post to, the headers and the body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


def make_request(
    model: str, inputs: Mapping[str, Array], form: Form, parameters: Mapping[str, int | bool] | None = None
) -> InferRequest:
    """Return the request that sends `inputs` (FP32 or INT32) to `model` and wants all its outputs back in the same form.

    `parameters` are the request's own, those of sequences for one.
    """
    path = f"/v2/models/{model}/infer"
    if form is Form.JSON:
        entries = [_entry(name, array) | {"data": array.ravel().tolist()} for name, array in inputs.items()]
        document = {"inputs": entries} | ({"parameters": dict(parameters)} if parameters else {})
        return InferRequest(path, {"Content-Type": "application/json"}, json.dumps(document).encode())
    entries = [_entry(name, array) | {"parameters": {"binary_data_size": array.nbytes}} for name, array in inputs.items()]
    header = json.dumps({"inputs": entries, "parameters": {**(parameters or {}), "binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(header))}
    return InferRequest(path, headers, b"".join([header, *(array.tobytes() for array in inputs.values())]))


def on_the_wire(address: Address, request: InferRequest) -> bytes:
    """Return the bytes that post `request` over HTTP/1.1, for those who send them by themselves."""
    headers = {"Host": str(address), **request.headers, "Content-Length": str(len(request.body))}
    head = [f"POST {request.path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join([*head, "", ""]).encode() + request.body


def read_outputs(headers: Mapping[str, str], body: bytes) -> dict[str, Array]:
    """Return the tensors of a response by name, each in its shape; raise BenchError when it isn't one.

    `headers` have names in lower case.
    """
    length = int(headers.get(HEADER_LENGTH.lower(), len(body)))
    try:
        entries = json.loads(body[:length])["outputs"]
        outputs = {}
        for entry in entries:
            dtype = DTYPES[entry["datatype"]]
            size_bytes = entry.get("parameters", {}).get("binary_data_size")
            if size_bytes is None:
                flat = np.array(entry["data"], dtype)
            else:
                flat = np.frombuffer(body[length : length + size_bytes], dtype)
                length += size_bytes
            outputs[entry["name"]] = flat.reshape(entry["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"not an inference response: {body[:200]!r} ({error})") from error
    return outputs


def check_answer(address: Address, request: InferRequest, expected: Mapping[str, Array]) -> None:
    """Send the request once and compare the answer; raise BenchError when it isn't what the model must say.

    Each output must have the shape of `expected` and be equal to four digits: engines sum in their own order.
    """
    status, headers, body = _ask(address, "POST", request)
    if status != 200:
        raise BenchError(f"{address}{request.path} answers {status}: {body[:300]!r}")
    outputs = read_outputs(headers, body)
    for name, array in expected.items():
        got = outputs.get(name)
        if got is None or got.shape != array.shape or not np.allclose(got, array, rtol=1e-4, atol=1e-6):
            raise BenchError(f"{address}{request.path}: wrong answer in output '{name}': {got} instead of {array}")


class Counts(NamedTuple):
    """What a server says of a model, over all its versions: requests answered well, and batches it ran for them."""

    successes: int
    executions: int


def counts(address: Address, model: str) -> Counts:
    """Return the counts of `model` since it was loaded. Raises BenchError when the server knows none."""
    status, _, body = _ask(address, "GET", InferRequest(f"/v2/models/{model}/stats", {}, b""))
    if status != 200:
        raise BenchError(f"{address}: statistics of '{model}' answer {status}: {body[:300]!r}")
    versions = json.loads(body)["model_stats"]
    return Counts(
        sum(int(version["inference_stats"]["success"]["count"]) for version in versions),
        sum(int(version["execution_count"]) for version in versions),
    )


def exchange(address: Address, method: str, request: InferRequest) -> tuple[int, dict[str, str], bytes]:
    """Send one request on a connection of its own; return status, headers (names in lower case) and body.

    Raises OSError when nobody answers.
    """
    connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
    try:
        connection.request(method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        return response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()
    finally:
        connection.close()


def _ask(address: Address, method: str, request: InferRequest) -> tuple[int, dict[str, str], bytes]:
    try:
        return exchange(address, method, request)
    except OSError as error:
        raise BenchError(f"{address}{request.path}: no answer ({error})") from error


def _entry(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype]}
