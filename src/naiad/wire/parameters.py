"""Request parameters as JSON carries them.

Owns the inference's request-level parameters: those with a meaning of their own, and which values a custom one may have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from naiad.errors import invalid_argument
from naiad.request.call import InferCall, Parameter
from naiad.wire.json_text import describe

UINT64_MAX = 2**64 - 1

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_RESERVED_PREFIX = "triton_"


def custom_parameter(key: str, value: Any) -> Parameter:
    """Return `value` when a custom parameter may have it: a string, a boolean, a 64-bit signed integer or a float.

    Raises INVALID_ARGUMENT naming the key for null, arrays, objects and larger integers.
    """
    if type(value) is int and not _INT64_MIN <= value <= _INT64_MAX:
        raise invalid_argument(f"parameter '{key}' is {describe(value)}, integers must be from {_INT64_MIN} to {_INT64_MAX}")
    if isinstance(value, (str, int, float)):
        return value
    raise invalid_argument(
        f"parameter '{key}' has invalid type: it must be a string, an integer, a boolean or a float, got {describe(value)}"
    )


def unsigned(what: str, value: Any, maximum: int) -> int:
    """Return `value` when it is a JSON integer from 0 to `maximum`; `what` names it in the INVALID_ARGUMENT otherwise."""
    if type(value) is not int or not 0 <= value <= maximum:
        raise invalid_argument(f"{what} must be an integer from 0 to {maximum}, got {describe(value)}")
    return value


def boolean(what: str, value: Any) -> bool:
    """Return `value` when it is true or false; `what` names it in the INVALID_ARGUMENT otherwise."""
    if type(value) is not bool:
        raise invalid_argument(f"{what} must be true or false, got {describe(value)}")
    return value


def read_parameters(parameters: Any, call: InferCall) -> None:
    """Put the request-level `parameters` of an inference into `call`: those with a meaning of their own, and the custom ones.

    Raises INVALID_ARGUMENT naming the key for a value of a wrong type or range, and for a key with the prefix `triton_`.
    """
    if type(parameters) is not dict:
        raise invalid_argument(f"'parameters' must be an object, got {describe(parameters)}")
    custom = {}
    for key, value in parameters.items():
        read = _PARAMETERS.get(key)
        if read is not None:
            read(call, value)
        elif key.startswith(_RESERVED_PREFIX):
            raise invalid_argument(f"parameter '{key}' is refused: keys that begin with '{_RESERVED_PREFIX}' are reserved")
        else:
            custom[key] = custom_parameter(key, value)
    call.parameters = custom


def _read_sequence_id(call: InferCall, value: Any) -> None:
    if type(value) is not str and (type(value) is not int or not 0 <= value <= UINT64_MAX):
        raise invalid_argument(
            f"parameter 'sequence_id' must be a string or an integer from 0 to {UINT64_MAX}, got {describe(value)}"
        )
    call.sequence_id = value


def _read_sequence_start(call: InferCall, value: Any) -> None:
    call.is_sequence_start = boolean("parameter 'sequence_start'", value)


def _read_sequence_end(call: InferCall, value: Any) -> None:
    call.is_sequence_end = boolean("parameter 'sequence_end'", value)


def _read_priority(call: InferCall, value: Any) -> None:
    call.priority = unsigned("parameter 'priority'", value, UINT64_MAX)


def _read_timeout(call: InferCall, value: Any) -> None:
    call.timeout_us = unsigned("parameter 'timeout'", value, UINT64_MAX)


def _read_binary_output(call: InferCall, value: Any) -> None:
    call.binary_output = boolean("parameter 'binary_data_output'", value)


_PARAMETERS: dict[str, Callable[[InferCall, Any], None]] = {
    "sequence_id": _read_sequence_id,
    "sequence_start": _read_sequence_start,
    "sequence_end": _read_sequence_end,
    "priority": _read_priority,
    "timeout": _read_timeout,
    "binary_data_output": _read_binary_output,
}
