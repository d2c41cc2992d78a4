"""The response to POST /v2/models/…/infer, from an `InferResponse` to buffers.

Owns the order of members, which output is written as JSON and which as bytes, and the binary section. Copies no tensor but
BYTES ones, whose binary form has to be made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson

from naiad.errors import internal, unimplemented
from naiad.request.call import Buffer, InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.wire.json_data import encode_data

_MOST_TEXTS = 1024
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


class EncodedResponse(NamedTuple):
    """A response body: `buffers` in order, the first is the JSON part. `header_length` is the JSON part's size in bytes when
    tensors follow it (application/octet-stream), None when all is JSON (application/json).
    """

    buffers: list[Buffer]
    header_length: int | None


class ResponseTemplates:
    """JSON parts that were written before: a response to a call with the same template, whose outputs have the same names,
    datatypes and shapes and go out as bytes, has the same text. Remembers a bounded number.
    """

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[tuple[Any, ...], bytes] = {}

    def find(self, response: InferResponse, call: InferCall) -> EncodedResponse | None:
        """Return the body of a response whose text is known."""
        text = self._texts.get(self._key(response, call))
        if text is None:
            return None
        buffers: list[Buffer] = [text]
        for output in response.outputs:
            _add_blob(output, buffers)
        return EncodedResponse(buffers, len(text) if len(buffers) > 1 else None)

    def learn(self, response: InferResponse, call: InferCall, encoded: EncodedResponse) -> None:
        """Remember the text of `encoded`, unless there is more in it than those names, datatypes and shapes."""
        has_other = response.id or response.parameters or len(encoded.buffers) != len(response.outputs) + 1
        if has_other or any(output.array.dtype.hasobject for output in response.outputs):
            return
        if len(self._texts) >= _MOST_TEXTS:
            self._texts.clear()
        self._texts[self._key(response, call)] = bytes(encoded.buffers[0])

    @staticmethod
    def _key(response: InferResponse, call: InferCall) -> tuple[Any, ...]:
        outputs = response.outputs
        if len(outputs) == 1:
            output = outputs[0]
            shapes: Any = (output.name, output.datatype.name, output.array.shape)
        else:
            shapes = tuple([(output.name, output.datatype.name, output.array.shape) for output in outputs])
        return call.template, response.model_name, response.model_version, response.id, bool(response.parameters), shapes


def encode_infer(response: InferResponse, call: InferCall, templates: ResponseTemplates | None = None) -> EncodedResponse:
    """Return the body that answers `call`. The tensors' memory is handed out as it is and must stay unchanged until it is sent.

    An output has the form that the call's entry for it asks for (the last one, where it is listed twice), or the call's default
    when it isn't listed. Members: id (unless empty), model_name, model_version, parameters (unless empty), outputs; of an
    output: name, datatype, shape, then parameters or data, neither for one in shared memory. Raises INVALID_ARGUMENT for an
    output that JSON can't hold, UNIMPLEMENTED for a response parameter of bytes, INTERNAL for another that JSON can't hold.
    `templates` remembers texts between responses.
    """
    if templates is None or call.template is None:
        return _encode(response, call)
    encoded = templates.find(response, call)
    if encoded is None:
        encoded = _encode(response, call)
        templates.learn(response, call, encoded)
    return encoded


def _encode(response: InferResponse, call: InferCall) -> EncodedResponse:
    document: dict[str, Any] = {"id": response.id} if response.id else {}
    document["model_name"] = response.model_name
    document["model_version"] = response.model_version
    if response.parameters:
        document["parameters"] = encode_parameters(response.parameters)
    is_binary = {output.name: output.is_binary for output in call.outputs}
    buffers: list[Buffer] = [b""]
    outputs = document["outputs"] = []
    for output in response.outputs:
        entry = {"name": output.name, "datatype": output.datatype.name, "shape": output.array.shape}
        if output.region is not None:
            pass  # its elements are where the client wants them
        elif is_binary.get(output.name, call.binary_output):
            entry["parameters"] = {"binary_data_size": _add_blob(output, buffers)}
        else:
            entry["data"] = encode_data(output)
        outputs.append(entry)
    buffers[0] = text = dumps(document, _OPTIONS)
    return EncodedResponse(buffers, len(text) if len(buffers) > 1 else None)


def encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response's parameters as orjson takes them; non-finite floats are written NaN, Infinity and -Infinity."""
    return {key: _encode_parameter(key, value) for key, value in parameters.items()}


def dumps(document: dict[str, Any], options: int) -> bytes:
    """Return `document` as JSON text; INTERNAL when the model gave a parameter or name that JSON can't hold."""
    try:
        return orjson.dumps(document, option=options)
    except orjson.JSONEncodeError as error:
        raise internal(f"the response of model '{document['model_name']}' can't be written as JSON: {error}") from error


def _encode_parameter(key: str, value: Any) -> Any:
    if isinstance(value, bytes):
        raise unimplemented(f"response parameter '{key}' has bytes, which the HTTP protocol can't carry")
    if isinstance(value, float) and not math.isfinite(value):
        return orjson.Fragment(b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity")
    return value


def _add_blob(output: OutputTensor, buffers: list[Buffer]) -> int:
    """Add the output's binary form to `buffers` unless it is empty; return its size in bytes."""
    array = output.array
    if array.dtype.hasobject:
        blob: Buffer = bytes_tensor.encode(array.reshape(-1).tolist())
    elif not array.nbytes:
        return 0
    else:
        # The bytes of a view, whatever its dtype: the buffer protocol knows no bfloat16, and can't cast every shape.
        blob = (array if array.flags.c_contiguous else np.ascontiguousarray(array)).reshape(-1).view(np.uint8).data
    if blob:
        buffers.append(blob)
    return len(blob)
