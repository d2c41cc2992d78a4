"""ModelStreamInferResponse: a response, an error, or the end of a request on a stream.

Owns its two fields and the parameter that says whether a response is a request's last. Tensors aren't copied.
"""

from __future__ import annotations

from naiad.proto import message_class
from naiad.request.call import Buffer
from naiad.request.response import InferResponse
from naiad.wire.proto.fields import length_delimited, varint
from naiad.wire.proto.infer_response import ProtoResponseTemplates, encode_infer

FINAL_PARAMETER = "triton_final_response"

_INFER_RESPONSE_TAG = b"\x12"

_StreamResponse = message_class("inference.ModelStreamInferResponse")
_Response = message_class("inference.ModelInferResponse")


def _final(is_final: bool) -> bytes:
    """Return the parameter as a field of a ModelInferResponse."""
    message = _Response()
    message.parameters[FINAL_PARAMETER].bool_param = is_final
    serialized: bytes = message.SerializeToString()
    return serialized


_FINAL = {is_final: _final(is_final) for is_final in (False, True)}


def encode_stream_response(
    response: InferResponse, is_final: bool, templates: ProtoResponseTemplates | None = None
) -> list[Buffer]:
    """Return a response as a message of its stream. Raises as `encode_infer` does."""
    inner = encode_infer(response, templates)
    inner.append(_FINAL[is_final])
    size = sum(map(len, inner))
    return [_INFER_RESPONSE_TAG + varint(size), *inner]


def encode_stream_end(request_id: str, model_name: str, model_version: str) -> list[Buffer]:
    """Return the message that says nothing but that the request is over; name and version are the request's."""
    inner = _Response(id=request_id, model_name=model_name, model_version=model_version).SerializeToString() + _FINAL[True]
    return [length_delimited(2, inner)]


def encode_stream_error(
    text: str, request_id: str, model_name: str = "", model_version: str = "", is_final: bool = False
) -> list[Buffer]:
    """Return the message of a request that failed. What failed before it reached its model has its id only."""
    message = _StreamResponse(error_message=text.encode("utf-8", "backslashreplace").decode())
    message.infer_response.id = request_id
    message.infer_response.model_name = model_name
    message.infer_response.model_version = model_version
    if is_final:
        message.infer_response.parameters[FINAL_PARAMETER].bool_param = True
    return [message.SerializeToString()]
