"""Requests and responses with tensors in JSON, turned into the same with tensors as bytes, and back.

Owns that translation, so that the costly half of it (reading and writing numbers as text) can be done in another process and
only bytes have to travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson

from naiad.request.call import Buffer, CallOutput, InferCall, RegionSlice
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BY_NAME
from naiad.wire.json_text import parse_object
from naiad.wire.kserve_request import read_inputs
from naiad.wire.limits import RequestLimits


def request_in_binary_form(body: Buffer, header_length: int, limits: RequestLimits) -> tuple[bytes, list[Buffer]]:
    """Return the JSON part and the blobs of a request that says the same as `body` with all tensors in the binary section, but
    for those in shared memory.

    `header_length` is the size of the JSON part in bytes. Raises InferenceServerError for what is wrong with the tensors; other
    members are taken over as they are, for whoever reads the result to check.
    """
    view = memoryview(body)
    limits.check("request JSON size", header_length)
    document = parse_object(view[:header_length])
    blobs: list[Buffer] = []
    inputs = read_inputs(document, view, header_length, "", limits)
    for item, read in zip(document["inputs"] if inputs else (), inputs):
        if read.region is not None:
            continue
        blob = read.buffer if read.array is None else bytes_of(read.array)
        item.pop("data", None)
        item["parameters"] = {**item.get("parameters", {}), "binary_data_size": len(blob or b"")}
        blobs.append(blob or b"")
    return orjson.dumps(document), blobs


def response_as_parts(response: InferResponse, call: InferCall) -> tuple[dict[str, Any], list[Buffer]]:
    """Return a response and the forms that `call` asks for as a JSON value and the outputs' bytes."""
    is_binary = {output.name: output.is_binary for output in call.outputs}
    blobs = [bytes_of(output.array) if output.region is None else b"" for output in response.outputs]
    outputs = [
        {
            "name": output.name,
            "datatype": output.datatype.name,
            "shape": list(output.array.shape),
            "size": len(blob),
            "is_binary": is_binary.get(output.name, call.binary_output),
            "is_in_region": output.region is not None,
        }
        for output, blob in zip(response.outputs, blobs)
    ]
    meta = {
        "model_name": response.model_name,
        "model_version": response.model_version,
        "id": response.id,
        "parameters": dict(response.parameters),
        "outputs": outputs,
    }
    return meta, blobs


def response_of_parts(meta: dict[str, Any], body: Buffer) -> tuple[InferResponse, InferCall]:
    """Return what `response_as_parts` was made of: the response, and a call that asks for the same forms."""
    view = memoryview(body)
    outputs: list[OutputTensor] = []
    position = 0
    for item in meta["outputs"]:
        end = position + item["size"]
        outputs.append(_output(item, view[position:end]))
        position = end
    response = InferResponse(meta["model_name"], meta["model_version"], meta["id"], outputs, meta["parameters"])
    wanted = [CallOutput(item["name"], 0, item["is_binary"]) for item in meta["outputs"]]
    return response, InferCall(meta["model_name"], outputs=wanted)


def _output(item: dict[str, Any], blob: memoryview) -> OutputTensor:
    datatype, shape = BY_NAME[item["datatype"]], tuple(item["shape"])
    if item["is_in_region"]:
        # Only its shape is written: an array of that shape which takes no memory.
        return OutputTensor(item["name"], datatype, np.broadcast_to(np.uint8(0), shape), RegionSlice("", 0, 0))
    if not datatype.size_bytes:
        elements = bytes_tensor.decode(blob, len(blob))
        return OutputTensor(item["name"], datatype, bytes_tensor.as_array(elements, shape))
    array = np.frombuffer(blob, datatype.numpy) if len(blob) else np.empty(0, datatype.numpy)
    return OutputTensor(item["name"], datatype, array.reshape(shape))


def bytes_of(array: np.ndarray[Any, Any]) -> Buffer:
    """Return a tensor's binary form: a view where the array lies as that, else a copy."""
    if array.dtype.hasobject:
        return bytes_tensor.encode(_elements(array))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def _elements(array: np.ndarray[Any, Any]) -> Iterable[bytes]:
    elements: list[bytes] = array.reshape(-1).tolist()
    return elements
