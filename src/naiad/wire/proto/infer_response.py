"""ModelInferResponse, from an `InferResponse` to buffers.

Owns its fields. Tensors are always in raw form, one entry for each output in the outputs' order, and aren't copied but for
BYTES ones, whose binary form has to be made. An output in shared memory has an empty entry.
"""

from __future__ import annotations

from typing import Any

from naiad.errors import internal, invalid_argument
from naiad.proto import Message, message_class
from naiad.request.call import Buffer
from naiad.request.response import InferResponse, OutputTensor
from naiad.wire.binary_form import bytes_of
from naiad.wire.proto.fields import length_delimited, varint

_MOST_HEADS = 1024
_MAX_BYTES = 2**31 - 1
_ID = 3
_RAW_CONTENTS_TAG = b"\x32"

_Response = message_class("inference.ModelInferResponse")
_EMPTY_RAW = _RAW_CONTENTS_TAG + b"\0"


class ProtoResponseTemplates:
    """Heads that were written before: responses of one model whose outputs have the same names, datatypes and shapes, and that
    have no parameters, differ in id and elements only. Remembers a bounded number.
    """

    __slots__ = ("heads",)

    def __init__(self) -> None:
        self.heads: dict[tuple[Any, ...], bytes] = {}


def encode_infer(response: InferResponse, templates: ProtoResponseTemplates | None = None) -> list[Buffer]:
    """Return the ModelInferResponse as buffers in order. The tensors' memory is handed out as it is.

    Raises INVALID_ARGUMENT for more than 2^31-1 bytes and INTERNAL for a parameter that protobuf can't hold.
    """
    head = _head(response, templates)
    if response.id:
        head += length_delimited(_ID, response.id.encode("utf-8", "backslashreplace"))
    buffers: list[Buffer] = [head]
    size = len(head)
    for output in response.outputs:
        raw = b"" if output.region is not None else bytes_of(output.array)
        if not len(raw):
            buffers.append(_EMPTY_RAW)
            continue
        buffers.append(_RAW_CONTENTS_TAG + varint(len(raw)))
        buffers.append(raw)
        size += len(raw)
    if size > _MAX_BYTES:
        raise invalid_argument(
            f"the response of model '{response.model_name}' has {size} bytes, a gRPC message can have {_MAX_BYTES}"
        )
    return buffers


def set_parameter(parameter: Message, key: str, value: Any) -> None:
    """Put a response's parameter into its message. Raises INTERNAL for a value that it can't hold."""
    field = _FIELD_OF_TYPE.get(type(value))
    try:
        if field is None:
            raise TypeError(f"a {type(value).__name__}")
        setattr(parameter, field, value)
    except (TypeError, ValueError) as error:
        raise internal(f"response parameter '{key}' can't be sent over gRPC: {error}") from error


_FIELD_OF_TYPE = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


def _head(response: InferResponse, templates: ProtoResponseTemplates | None) -> bytes:
    if templates is None or response.parameters:
        return _serialized(response)
    outputs = response.outputs
    if len(outputs) == 1:
        output = outputs[0]
        shapes: Any = (output.name, output.datatype.name, output.array.shape)
    else:
        shapes = tuple([(output.name, output.datatype.name, output.array.shape) for output in outputs])
    key = (response.model_name, response.model_version, shapes)
    head = templates.heads.get(key)
    if head is None:
        head = _serialized(response)
        if len(templates.heads) >= _MOST_HEADS:
            templates.heads.clear()
        templates.heads[key] = head
    return head


def _serialized(response: InferResponse) -> bytes:
    """Return everything of the response but its id and elements."""
    message = _Response(model_name=response.model_name, model_version=response.model_version)
    for key, value in response.parameters.items():
        try:
            parameter = message.parameters[key]
        except (TypeError, ValueError) as error:
            raise internal(f"response parameter {key!r} can't be sent over gRPC: {error}") from error
        set_parameter(parameter, key, value)
    for output in response.outputs:
        _add_output(message, output)
    serialized: bytes = message.SerializeToString()
    return serialized


def _add_output(message: Message, output: OutputTensor) -> None:
    try:
        message.outputs.add(name=output.name, datatype=output.datatype.name, shape=output.array.shape)
    except (TypeError, ValueError) as error:
        raise internal(f"output {output.name!r} can't be sent over gRPC: {error}") from error
