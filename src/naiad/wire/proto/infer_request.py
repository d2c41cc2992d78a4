"""ModelInferRequest, from bytes to an `InferCall`.

Owns where each input's elements are and what the message may hold. Tensors in raw form are views of the message. Compares
nothing with a model: names, shapes and sizes that don't fit one are found later.
"""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import DecodeError

from naiad.errors import InferenceServerError, invalid_argument
from naiad.proto import Message, message_class
from naiad.request.call import Buffer, CallInput, CallOutput, CallTemplate, InferCall
from naiad.wire.proto.contents import read_contents
from naiad.wire.proto.fields import SplitRequest, split_request
from naiad.wire.proto.parameters import read_classification, read_region, read_request_parameters
from naiad.wire.proto.version import check_version

_MOST_KNOWN = 512
_LONGEST_KNOWN = 2048

_Request = message_class("inference.ModelInferRequest")


class _Known(CallTemplate):
    """What a head says: a call without its id and elements, and the sizes of the tensors that came with it."""

    __slots__ = ("call", "inputs", "sizes", "wants_empty_final")

    def __init__(self, call: InferCall, sizes: list[int], wants_empty_final: bool) -> None:
        self.call = replace(call, id="", inputs=[])
        self.inputs = [(item.name, item.datatype, item.shape) for item in call.inputs]
        self.sizes = sizes
        self.wants_empty_final = wants_empty_final


class ProtoTemplates:
    """Heads that were read before: the same bytes with tensors of the same sizes need no parsing. Remembers a bounded number.

    The id isn't part of a head. Only calls whose inputs are all in raw form are remembered.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def find(self, split: SplitRequest) -> tuple[InferCall, bool] | None:
        """Return the call of a head that is known. What it holds beside its inputs' bytes is shared and must not be changed."""
        known = self._known.get(split.head)
        raws = split.raws
        if known is None or known.sizes != list(map(len, raws)):
            return None
        first = known.call
        inputs = [CallInput(name, datatype, shape, raw) for (name, datatype, shape), raw in zip(known.inputs, raws)]
        call_id = _text(split.id) if split.id else ""
        return first.repeated(first.model_name, first.model_version, call_id, inputs, known), known.wants_empty_final

    def learn(self, split: SplitRequest, call: InferCall, wants_empty_final: bool) -> None:
        """Remember a head that was read as `call`."""
        is_plain = all(item.buffer is not None for item in call.inputs) and len(call.inputs) == len(split.raws)
        if not is_plain or len(split.head) > _LONGEST_KNOWN or any(output.region for output in call.outputs):
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[split.head] = _Known(call, list(map(len, split.raws)), wants_empty_final)


def decode_infer(message: Buffer, templates: ProtoTemplates | None = None) -> tuple[InferCall, bool]:
    """Return the call that a ModelInferRequest makes, and whether its stream wants an empty final response.

    Tensors in raw form are views of `message`, which must not change afterwards. `templates` remembers heads between calls.
    Raises INVALID_ARGUMENT for everything that is wrong with the message itself.
    """
    split = split_request(message)
    if split is None:
        split = _split_by_protobuf(message)
    if templates is None:
        return _read(split)
    known = templates.find(split)
    if known is None:
        known = _read(split)
        templates.learn(split, *known)
    return known


def request_id(message: Buffer) -> str:
    """Return the id of a request that may be wrong otherwise, "" when it can't be told."""
    split = split_request(message)
    return "" if split is None else split.id.decode("utf-8", "replace")


def _split_by_protobuf(message: Buffer) -> SplitRequest:
    """Return the parts of a message with fields that only protobuf can skip. Raises INVALID_ARGUMENT when it can't either."""
    request = _parse(bytes(message))
    raws = [memoryview(raw) for raw in request.raw_input_contents]
    request_id = request.id.encode()
    request.ClearField("raw_input_contents")
    request.ClearField("id")
    request.DiscardUnknownFields()
    return SplitRequest(request.SerializeToString(), request_id, raws)


def _parse(data: bytes) -> Message:
    try:
        return _Request.FromString(data)
    except DecodeError as error:
        raise invalid_argument(f"the message is no inference.ModelInferRequest: {error}") from error


def _read(split: SplitRequest) -> tuple[InferCall, bool]:
    request = _parse(split.head)
    call = InferCall(request.model_name, check_version(request.model_version), _text(split.id), binary_output=True)
    used = 0
    for item in request.inputs:
        read = _read_input(item, request.model_name, bool(split.raws))
        if read.array is None and read.region is None:
            if used >= len(split.raws):
                raise invalid_argument(
                    f"unable to find data for input tensor '{read.name}' for model '{request.model_name}' in request."
                )
            read.buffer = split.raws[used]
            used += 1
        call.inputs.append(read)
    call.outputs.extend(map(_read_output, request.outputs))
    return call, bool(request.parameters) and read_request_parameters(request.parameters, call)


def _read_input(item: Message, model_name: str, has_raws: bool) -> CallInput:
    """Return an input with its elements, unless they are among the raw contents."""
    name = item.name
    shape = list(item.shape)
    for index, size in enumerate(shape):
        if size < 0:
            raise invalid_argument(f"'shape' of input '{name}' must hold integers >= 0 only, got {size} as dimension {index}")
    read = CallInput(name, item.datatype, shape)
    if item.parameters:
        read.region = read_region(f"input '{name}'", item.parameters)
    if item.HasField("contents"):
        if read.region is not None:
            raise _two_sources(name, model_name, "shared memory")
        if has_raws:
            raise _two_sources(name, model_name, "raw_input_contents")
        read.array = read_contents(item.contents, name, item.datatype, model_name)
    return read


def _two_sources(name: str, model_name: str, other: str) -> InferenceServerError:
    return invalid_argument(f"contents field must not be specified when using {other} for '{name}' for model '{model_name}'")


def _read_output(item: Message) -> CallOutput:
    output = CallOutput(item.name, is_binary=True)
    if item.parameters:
        what = f"output '{item.name}'"
        output.region = read_region(what, item.parameters)
        output.classification = read_classification(what, item.parameters)
        if output.region is not None and output.classification:
            raise invalid_argument(f"{what} can't have both 'shared_memory_region' and 'classification': set only one of them")
    return output


def _text(request_id: bytes) -> str:
    try:
        return request_id.decode()
    except UnicodeDecodeError as error:
        raise invalid_argument(f"'id' of the request must be UTF-8: {error}") from error
