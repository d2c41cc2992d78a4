"""The generate extension: one flat JSON object to an `InferCall`, and an `InferResponse` to one.

Owns the mapping of keys to inputs and parameters, and of lists to shapes by the model's metadata. Streams are framed by `sse`.
"""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

import orjson

from naiad.errors import InferenceServerError, invalid_argument
from naiad.request.call import Buffer, CallInput, InferCall, Parameter
from naiad.request.response import InferResponse
from naiad.request.service import ModelMetadata, TensorMetadata
from naiad.tensor import shape as shapes
from naiad.tensor.datatype import BY_NAME
from naiad.wire.json_data import decode_data, encode_data
from naiad.wire.json_text import describe, parse_object
from naiad.wire.kserve_response import dumps, encode_parameters
from naiad.wire.limits import RequestLimits
from naiad.wire.parameters import custom_parameter

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS


def decode_generate(body: Buffer, metadata: ModelMetadata, model_version: str, limits: RequestLimits) -> InferCall:
    """Return the call that `body` holds.

    A key that names an input of the model becomes that tensor, `id` also the request's id, `parameters` an object whose members
    go the same way; everything else becomes a custom parameter. An empty array for an input counts as absent. Raises
    INVALID_ARGUMENT naming the key.
    """
    limits.check("request JSON size", len(body))
    document = parse_object(body)
    reader = _Reader(metadata, limits)
    request_id = document.get("id", "")
    if type(request_id) is not str:
        raise invalid_argument(f"'id' must be a string, got {describe(request_id)}")
    nested = document.pop("parameters", {})
    if type(nested) is not dict:
        raise invalid_argument(f"'parameters' must be an object, got {describe(nested)}")
    for key, value in chain(document.items(), nested.items()):
        reader.read(key, value)
    limits.check("decoded data of all inputs", reader.size_bytes)
    call = InferCall(metadata.name, model_version, request_id)
    call.inputs = list(reader.inputs.values())
    call.parameters = reader.parameters
    return call


def encode_generate(response: InferResponse) -> bytes:
    """Return the response as one JSON object with its keys in alphabetical order.

    Each output is under its own name, a scalar when it has exactly one element, else a flat array. Raises like `encode_infer`.
    """
    document: dict[str, Any] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id:
        document["id"] = response.id
    document.update(encode_parameters(response.parameters))
    for output in response.outputs:
        data = encode_data(output)
        if output.array.size == 1:
            data = orjson.Fragment(orjson.dumps(data, option=_OPTIONS)[1:-1])
        document[output.name] = data
    return dumps(document, _OPTIONS)


class _Reader:
    """Sorts keys into inputs and parameters of one call."""

    def __init__(self, metadata: ModelMetadata, limits: RequestLimits) -> None:
        self._known = {tensor.name: tensor for tensor in metadata.inputs}
        self._limits = limits
        self.inputs: dict[str, CallInput] = {}
        self.parameters: dict[str, Parameter] = {}
        self.size_bytes = 0
        if "parameters" in self._known:
            raise invalid_argument(
                f"model '{metadata.name}' has an input named 'parameters', a key that generate takes for request parameters: "
                "use infer"
            )

    def read(self, key: str, value: Any) -> None:
        """Take one member of the request."""
        if value is None:
            raise invalid_argument(f"'{key}' is null: leave it out or give it a value")
        if key in self.inputs or key in self.parameters:
            raise invalid_argument(f"'{key}' is given twice: as a member of the request and in its 'parameters'")
        tensor = self._known.get(key)
        if tensor is None:
            self.parameters[key] = custom_parameter(key, value)
        elif value != []:
            self._read_tensor(tensor, value)

    def _read_tensor(self, tensor: TensorMetadata, value: Any) -> None:
        data = value if type(value) is list else [value]
        array = decode_data(data, BY_NAME[tensor.datatype], tensor.name, self._limits)
        shape = _shape(tensor, data, array.size)
        self.inputs[tensor.name] = CallInput(tensor.name, tensor.datatype, shape, array=array)
        self.size_bytes += sum(map(len, array)) + 4 * array.size if array.dtype.hasobject else array.nbytes


def _shape(tensor: TensorMetadata, data: list[Any], count: int) -> list[int]:
    """Return the shape in which the model takes `count` elements given as `data`."""
    lengths = _nested_lengths(data)
    if lengths is None:
        raise _bad_shape(tensor, "its arrays have different lengths")
    if len(lengths) > 1:
        return _padded(tensor, lengths)
    return _distributed(tensor, count)


def _nested_lengths(data: list[Any]) -> list[int] | None:
    """Return the lengths of nested arrays, outermost first; None when they are irregular. `data` is known to be flat enough."""
    lengths = [len(data)]
    while True:
        types = set(map(type, data))
        if list not in types:
            return lengths
        inner = set(map(len, data)) if len(types) == 1 else set()
        if len(inner) != 1:
            return None
        lengths.extend(inner)
        data = list(chain.from_iterable(data))


def _padded(tensor: TensorMetadata, lengths: list[int]) -> list[int]:
    """Return the arrays' own shape with leading ones up to the model's rank: what is nested says its shape itself."""
    shape = [1] * (len(tensor.shape) - len(lengths)) + lengths
    if not shapes.matches(shape, tensor.shape):
        raise _bad_shape(tensor, f"its arrays have shape {shapes.text(lengths)}")
    return shape


def _distributed(tensor: TensorMetadata, count: int) -> list[int]:
    """Spread `count` elements over the model's shape: the innermost variable size takes what the fixed ones leave."""
    shape = [1 if size == shapes.VARIABLE else size for size in tensor.shape]
    fixed = prod(shape)
    if shapes.VARIABLE in tensor.shape and fixed:
        innermost = len(shape) - 1 - tensor.shape[::-1].index(shapes.VARIABLE)
        shape[innermost] = count // fixed
    if prod(shape) != count:
        raise _bad_shape(tensor, f"it has {count} element(s)")
    return shape


def _bad_shape(tensor: TensorMetadata, found: str) -> InferenceServerError:
    return invalid_argument(
        f"The schema can not convert input '{tensor.name}' to tensor with proper shape: {found}, "
        f"the model takes {shapes.text(tensor.shape)}"
    )
