"""InferParameter: request parameters as protobuf carries them.

Owns which of them have a meaning of their own, in requests, inputs and outputs, and which kinds of value each may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument
from naiad.proto import Message
from naiad.request.call import InferCall, Parameter, RegionSlice

_CHOICE = "parameter_choice"
_EMPTY_FINAL = "triton_enable_empty_final_response"
_RESERVED_PREFIX = "triton_"
_UINT64_MASK = 2**64 - 1
_INT32_MAX = 2**31 - 1
_REGION, _OFFSET, _SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


def read_request_parameters(parameters: Mapping[str, Message], call: InferCall) -> bool:
    """Put the request's parameters into `call`; return whether an empty final response is wanted.

    Raises INVALID_ARGUMENT naming the key for a value of a wrong kind or range, and for an unknown key with `triton_`.
    """
    custom: dict[str, Parameter] = {}
    wants_empty_final = False
    for key, value in parameters.items():
        kind = value.WhichOneof(_CHOICE)
        if key == "sequence_id":
            call.sequence_id = _sequence_id(key, value, kind)
        elif key == "sequence_start":
            call.is_sequence_start = _typed(key, value, kind, "bool_param")
        elif key == "sequence_end":
            call.is_sequence_end = _typed(key, value, kind, "bool_param")
        elif key == "priority":
            call.priority = _unsigned(key, value, kind, "int64_param", "uint64_param")
        elif key == "timeout":
            call.timeout_us = _unsigned(key, value, kind, "int64_param")
        elif key == _EMPTY_FINAL:
            wants_empty_final = _typed(key, value, kind, "bool_param")
        elif key.startswith(_RESERVED_PREFIX):
            raise invalid_argument(f"parameter '{key}' is refused: keys that begin with '{_RESERVED_PREFIX}' are reserved")
        elif kind is None or kind == "uint64_param":
            raise _wrong_kind(key, kind, "int64_param, bool_param, string_param or double_param")
        else:
            custom[key] = getattr(value, kind)
    call.parameters = custom
    return wants_empty_final


def read_region(what: str, parameters: Mapping[str, Message]) -> RegionSlice | None:
    """Return the shared memory that an input's or output's parameters name, None when they name none."""
    if _REGION not in parameters:
        for key in (_OFFSET, _SIZE):
            if key in parameters:
                raise invalid_argument(f"'{key}' of {what} is there without '{_REGION}', give both")
        return None
    region = parameters[_REGION]
    name = _typed(f"'{_REGION}' of {what}", region, region.WhichOneof(_CHOICE), "string_param")
    numbers = []
    if _SIZE not in parameters:
        raise invalid_argument(f"{what} is in shared memory region '{name[:256]}': '{_SIZE}' is missing")
    for key in (_OFFSET, _SIZE):
        if key not in parameters:
            numbers.append(0)
            continue
        value = parameters[key]
        numbers.append(_unsigned(f"'{key}' of {what}", value, value.WhichOneof(_CHOICE), "int64_param"))
    return RegionSlice(name, *numbers)


def read_classification(what: str, parameters: Mapping[str, Message]) -> int:
    """Return how many classes an output's parameters ask for, 0 for none."""
    if "classification" not in parameters:
        return 0
    value = parameters["classification"]
    count: int = _typed(f"'classification' of {what}", value, value.WhichOneof(_CHOICE), "int64_param")
    if not 0 < count <= _INT32_MAX:
        raise invalid_argument(f"'classification' of {what} must be from 1 to {_INT32_MAX}, got {count}")
    return count


def _sequence_id(key: str, value: Message, kind: str | None) -> int | str:
    if kind == "string_param":
        text: str = value.string_param
        return text
    number: int = _typed(key, value, kind, "int64_param")
    return number & _UINT64_MASK


def _unsigned(key: str, value: Message, kind: str | None, *allowed: str) -> int:
    if kind not in allowed:
        raise _wrong_kind(key, kind, " or ".join(allowed))
    number: int = getattr(value, kind)
    if number < 0:
        raise invalid_argument(f"parameter {_quoted(key)} must be at least 0, got {number}")
    return number


def _typed(key: str, value: Message, kind: str | None, allowed: str) -> Any:
    if kind != allowed:
        raise _wrong_kind(key, kind, allowed)
    return getattr(value, allowed)


def _wrong_kind(key: str, kind: str | None, allowed: str) -> InferenceServerError:
    return invalid_argument(f"parameter {_quoted(key)} has invalid type {kind or 'none'}, it must be {allowed}")


def _quoted(key: str) -> str:
    """Return a key in quotes; one that says whose it is has them already."""
    return key if key.startswith("'") else f"'{key}'"
