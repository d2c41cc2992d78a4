"""POST /v2/models/…/infer, from bytes to an `InferCall`.

Owns the request's JSON members, the binary section behind them, and what each may hold. Compares nothing with a model: names,
shapes and sizes that don't fit one are found later. Members it doesn't know are ignored; null is a value, not an absent member.
"""

from __future__ import annotations

from typing import Any, NoReturn

from naiad.errors import InferenceServerError, invalid_argument
from naiad.request.call import Buffer, CallInput, CallOutput, InferCall, RegionSlice
from naiad.tensor.datatype import BY_NAME
from naiad.wire.call_templates import CallTemplates
from naiad.wire.json_data import decode_data
from naiad.wire.json_text import describe, parse_object
from naiad.wire.limits import RequestLimits
from naiad.wire.parameters import UINT64_MAX, boolean, read_parameters, unsigned

_INT32_MAX = 2**31 - 1
_SOURCES = "'data', 'binary_data_size' and 'shared_memory_region'"


def parse_header_length(text: str) -> int:
    """Return the length of the JSON part that the `Inference-Header-Content-Length` header tells.

    Raises INVALID_ARGUMENT unless it is a decimal whole number from 0 to 2^31-1, without sign or spaces.
    """
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _INT32_MAX:
        return int(text)
    raise invalid_argument(
        f"inference header size should be in range (0, {_INT32_MAX}) and a decimal whole number, "
        f"got Inference-Header-Content-Length: {text[:100]!r}"
    )


def decode_infer(
    body: Buffer,
    header_length: int | None,
    model_name: str,
    model_version: str,
    limits: RequestLimits,
    templates: CallTemplates | None = None,
) -> InferCall:
    """Return the call that `body` holds; binary tensors are views of it, so it must not change afterwards.

    `header_length` is the size of the JSON part in bytes: None when there is no such header and all of `body` is JSON, 0 for a
    raw binary request, whose body is the one input's bytes. `templates` remembers texts between calls. Raises INVALID_ARGUMENT
    for everything that is wrong with the message.
    """
    view = memoryview(body)
    size = len(view)
    if header_length is None:
        header_length = size
    elif header_length == 0:
        limits.check("raw binary request", size)
        return InferCall(model_name, model_version, binary_output=True, raw_buffer=body)
    elif not 0 < header_length <= size:
        raise invalid_argument(f"inference header size should be in range (0, {size}), got {header_length}")
    text = bytes(view[:header_length]) if templates is not None and header_length < size else b""
    if text and templates is not None:
        known = templates.find(text, view, model_name, model_version)
        if known is not None:
            return known
    limits.check("request JSON size", header_length)
    document = parse_object(text or view[:header_length])
    call = InferCall(
        model_name,
        model_version,
        _text("'id'", document["id"]) if "id" in document else "",
        read_inputs(document, view, header_length, model_name, limits),
        _read_outputs(document["outputs"]) if "outputs" in document else [],
    )
    if "parameters" in document:
        read_parameters(document["parameters"], call)
    if text and templates is not None:
        templates.learn(text, call, size - header_length)
    return call


def read_inputs(
    document: dict[str, Any], view: memoryview, position: int, model_name: str, limits: RequestLimits
) -> list[CallInput]:
    """Return the inputs; `position` is where the binary section begins in `view`."""
    if "inputs" not in document:
        raise invalid_argument("Unable to parse 'inputs': the request JSON has no such member")
    inputs: list[CallInput] = []
    size = len(view)
    for index, item in enumerate(_array("'inputs'", document["inputs"])):
        read = _read_input_head(item, index)
        parameters = item.get("parameters")
        if parameters is None and "parameters" not in item:
            _read_json_data(read, item, limits)
        elif _has_binary_data(read, item, parameters):
            end = position + parameters["binary_data_size"]
            if end > size:
                raise invalid_argument(
                    f"unexpected size for input '{read.name}', expecting {end - size} additional bytes for model '{model_name}'"
                )
            read.buffer = view[position:end]
            position = end
        elif "shared_memory_region" in parameters:
            read.region = _read_region(f"input '{read.name}'", parameters)
        else:
            _read_json_data(read, item, limits)
        inputs.append(read)
    if position != size:
        raise invalid_argument(
            f"unexpected additional input data for model '{model_name}': {size - position} bytes are left after the last input"
        )
    return inputs


def _read_input_head(item: Any, index: int) -> CallInput:
    """Return an input with its name, datatype and shape."""
    try:
        name, datatype, shape = item["name"], item["datatype"], item["shape"]
    except (KeyError, TypeError):
        raise _incomplete_input(item, index) from None
    if type(name) is not str or type(datatype) is not str:
        _text(f"'name' of inputs[{index}]", name)
        _text(f"'datatype' of input '{name}'", datatype)
    if type(shape) is not list:
        raise invalid_argument(f"'shape' of input '{name}' must be an array of integers >= 0, got {describe(shape)}")
    for size in shape:
        if type(size) is not int or size < 0:
            raise _bad_shape(name, shape)
    return CallInput(name, datatype, shape)


def _incomplete_input(item: Any, index: int) -> InferenceServerError:
    if type(item) is not dict:
        return invalid_argument(f"inputs[{index}] must be an object, got {describe(item)}")
    missing = next(key for key in ("name", "datatype", "shape") if key not in item)
    where = f"input '{item['name']}'" if isinstance(item.get("name"), str) else f"inputs[{index}]"
    return invalid_argument(f"Unable to parse 'inputs': {where} has no member '{missing}'")


def _bad_shape(name: str, shape: list[Any]) -> InferenceServerError:
    index = next(index for index, size in enumerate(shape) if type(size) is not int or size < 0)
    return invalid_argument(
        f"'shape' of input '{name}' must hold integers >= 0 only, got {describe(shape[index])} as dimension {index}"
    )


def _has_binary_data(read: CallInput, item: dict[str, Any], parameters: Any) -> bool:
    """Return whether the input's elements are in the binary section; exactly one source of data must be named."""
    if type(parameters) is not dict:
        raise invalid_argument(f"'parameters' of input '{read.name}' must be an object, got {describe(parameters)}")
    is_binary = "binary_data_size" in parameters
    if is_binary + ("data" in item) + ("shared_memory_region" in parameters) != 1:
        _refuse_sources(read.name, item, parameters)
    if is_binary:
        size = parameters["binary_data_size"]
        if type(size) is not int or size < 0:
            unsigned(f"'binary_data_size' of input '{read.name}'", size, UINT64_MAX)
    return is_binary


def _refuse_sources(name: str, item: dict[str, Any], parameters: dict[str, Any]) -> NoReturn:
    """Raise for an input with no source of data, or with several."""
    sources: list[str] = [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if "data" in item:
        sources.append("data")
    raise _sources_error(name, sources)


def _sources_error(name: str, sources: list[str]) -> InferenceServerError:
    return invalid_argument(
        f"Input must set only one of the following fields: {_SOURCES}. Input '{name}' has set "
        + (" and ".join(f"'{source}'" for source in sources) or "none of them")
    )


def _read_json_data(read: CallInput, item: dict[str, Any], limits: RequestLimits) -> None:
    if "data" not in item:
        raise _sources_error(read.name, [])
    datatype = BY_NAME.get(read.datatype)
    if datatype is None:
        raise invalid_argument(f"invalid datatype for input {read.name}: '{read.datatype}' is none of {', '.join(BY_NAME)}")
    read.array = decode_data(item["data"], datatype, read.name, limits)


def _read_outputs(items: Any) -> list[CallOutput]:
    return [_read_output(item, index) for index, item in enumerate(_array("'outputs'", items))]


def _read_output(item: Any, index: int) -> CallOutput:
    """Return a requested output. One that is listed has its own form: JSON unless it says `binary_data: true` itself, whatever
    the request's `binary_data_output` is.
    """
    if type(item) is not dict:
        raise invalid_argument(f"outputs[{index}] must be an object, got {describe(item)}")
    if "name" not in item:
        raise invalid_argument(f"Unable to parse 'outputs': outputs[{index}] has no member 'name'")
    name = item["name"]
    if type(name) is not str:
        _text(f"'name' of outputs[{index}]", name)
    if "parameters" not in item:
        return CallOutput(name)
    parameters = item["parameters"]
    if type(parameters) is not dict:
        raise invalid_argument(f"'parameters' of output '{name}' must be an object, got {describe(parameters)}")
    is_binary, classes = parameters.get("binary_data", False), parameters.get("classification", 0)
    if type(is_binary) is not bool:
        boolean(f"'binary_data' of output '{name}'", is_binary)
    if classes != 0 or type(classes) is not int:
        unsigned(f"'classification' of output '{name}'", classes, _INT32_MAX)
    if "shared_memory_region" in parameters:
        if classes or is_binary:
            other = "classification" if classes else "binary_data"
            raise invalid_argument(
                f"output '{name}' can't have both 'shared_memory_region' and '{other}': set only one of them"
            )
        return CallOutput(name, region=_read_region(f"output '{name}'", parameters))
    return CallOutput(name, classes, is_binary)


def _read_region(what: str, parameters: dict[str, Any]) -> RegionSlice:
    name = _text(f"'shared_memory_region' of {what}", parameters["shared_memory_region"])
    offset = unsigned(f"'shared_memory_offset' of {what}", parameters.get("shared_memory_offset", 0), UINT64_MAX)
    if "shared_memory_byte_size" not in parameters:
        raise invalid_argument(f"{what} is in shared memory region '{name[:256]}': 'shared_memory_byte_size' is missing")
    size_bytes = unsigned(f"'shared_memory_byte_size' of {what}", parameters["shared_memory_byte_size"], UINT64_MAX)
    return RegionSlice(name, offset, size_bytes)


def _text(what: str, value: Any) -> str:
    if type(value) is not str:
        raise invalid_argument(f"{what} must be a string, got {describe(value)}")
    return value


def _array(what: str, value: Any) -> list[Any]:
    if type(value) is not list:
        raise invalid_argument(f"Unable to parse {what}: it must be an array, got {describe(value)}")
    return value
