"""Tensor elements as JSON: arrays of numbers, booleans or strings to flat numpy arrays, and back.

Owns flattening, element types and ranges, the same way for every datatype. Whether the count fits a shape is not its concern.
FP16 and BF16 have no JSON form. BYTES are UTF-8 text in JSON.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import orjson

from naiad.errors import InferenceServerError, invalid_argument
from naiad.request.response import OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BOOL, BYTES, FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, Datatype
from naiad.wire.json_text import describe
from naiad.wire.limits import RequestLimits

Array = np.ndarray[Any, Any]

MAX_DEPTH = 100

_INTEGERS = tuple(datatype.name for datatype in (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64))
_FLOATS = (FP32.name, FP64.name)


def decode_data(data: Any, datatype: Datatype, name: str, limits: RequestLimits) -> Array:
    """Return the elements of `data` (an array, nested as it may be, read in order) as a flat array in `datatype`'s numpy dtype.

    Raises INVALID_ARGUMENT naming input `name`, the element's index among all elements, its value and what is allowed: for an
    element of another JSON type (a boolean is no number, 1.0 no integer; floats also take integers), for a number outside the
    datatype's range, for nesting deeper than 100, for FP16 and BF16, and for more bytes than `limits` allow.
    """
    decode = _DECODERS.get(datatype.name)
    if decode is None:
        raise invalid_argument(
            f"receiving {datatype.name} data via JSON is not supported: send input '{name}' in the binary data format"
        )
    if type(data) is not list:
        raise invalid_argument(f"the data of input '{name}' must be an array, got {describe(data)}")
    elements, types = _flatten(data, name)
    limits.check(f"decoded data of input '{name}'", len(elements) * datatype.size_bytes)
    allowed, text = _ELEMENTS[datatype.name]
    if not types <= allowed:
        _refuse(elements, lambda element: type(element) in allowed, name, f"datatype {datatype.name} takes {text}")
    return decode(elements, datatype, name)


def encode_data(output: OutputTensor) -> Any:
    """Return the elements of `output` as a value that orjson (in its numpy mode) writes as one flat array.

    Non-finite floats are written NaN, Infinity and -Infinity. Raises INVALID_ARGUMENT for FP16 and BF16, and for a BYTES
    element that isn't UTF-8: the client has to ask for the binary form.
    """
    datatype = output.datatype.name
    if datatype not in _DECODERS:
        raise invalid_argument(
            f"sending {datatype} data via JSON is not supported: "
            f"ask for output '{output.name}' in the binary data format (binary_data: true)"
        )
    flat = np.ascontiguousarray(output.array).reshape(-1)
    if datatype == BYTES.name:
        return _texts(flat, output.name)
    if datatype in _FLOATS and not np.isfinite(flat).all():
        return orjson.Fragment(_with_non_finite(flat))
    return flat


def _flatten(data: list[Any], name: str) -> tuple[list[Any], set[type]]:
    """Return all elements in order, and their types. The cost goes by the number of elements and lists, however they nest."""
    types = set(map(type, data))
    depth = 1
    while types == {list}:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep(name)
        data = list(chain.from_iterable(data))
        types = set(map(type, data))
    if list in types:
        data = _flatten_mixed(data, name, depth)
        types = set(map(type, data))
    return data, types


def _flatten_mixed(data: list[Any], name: str, depth: int) -> list[Any]:
    flat: list[Any] = []
    open_lists = [iter(data)]
    while open_lists:
        for element in open_lists[-1]:
            if type(element) is list:
                open_lists.append(iter(element))
                break
            flat.append(element)
        else:
            open_lists.pop()
        if len(open_lists) + depth - 1 > MAX_DEPTH:
            raise _too_deep(name)
    return flat


def _decode_integers(elements: list[Any], datatype: Datatype, name: str) -> Array:
    bits = 8 * datatype.size_bytes
    low, high = (0, 2**bits - 1) if datatype.numpy.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if elements and not (low <= min(elements) and max(elements) <= high):
        _refuse(elements, lambda element: low <= element <= high, name, f"{datatype.name} holds {low} to {high}")
    return np.array(elements, datatype.numpy)


def _decode_floats(elements: list[Any], datatype: Datatype, name: str) -> Array:
    try:
        doubles: Array = np.array(elements, np.float64)
    except OverflowError:
        # Only an integer of more than 308 digits gets here: the slow reader keeps those as they are.
        _refuse(elements, _fits_double, name, _float_rule(datatype))
        raise
    if doubles.dtype == datatype.numpy:
        return doubles
    with np.errstate(over="ignore"):
        floats = doubles.astype(datatype.numpy)
    if np.isinf(floats).any():
        overflowing = np.flatnonzero(np.isinf(floats) & ~np.isinf(doubles)).tolist()
        if overflowing:
            raise _element_error(overflowing[0], elements[overflowing[0]], name, _float_rule(datatype))
    return floats


def _decode_booleans(elements: list[Any], datatype: Datatype, _: str) -> Array:
    return np.array(elements, datatype.numpy)


def _decode_texts(elements: list[Any], _: Datatype, __: str) -> Array:
    return bytes_tensor.as_array([element.encode() for element in elements], (len(elements),))


def _float_rule(datatype: Datatype) -> str:
    bound = np.finfo(np.float64 if datatype.name == FP64.name else np.float32).max
    return f"{datatype.name} holds {-bound} to {bound}"


def _fits_double(element: float) -> bool:
    return abs(element) <= sys.float_info.max


def _refuse(elements: list[Any], is_allowed: Callable[[Any], bool], name: str, rule: str) -> None:
    """Raise for the first element that isn't allowed; slow, and only called when there is one."""
    for index, element in enumerate(elements):
        if not is_allowed(element):
            raise _element_error(index, element, name, rule)


def _element_error(index: int, element: Any, name: str, rule: str) -> InferenceServerError:
    return invalid_argument(f"element {index} of the data of input '{name}' is {describe(element)}: {rule}")


def _too_deep(name: str) -> InferenceServerError:
    return invalid_argument(f"the data of input '{name}' is nested more than {MAX_DEPTH} arrays deep")


def _texts(flat: Array, name: str) -> list[str]:
    texts: list[str] = []
    try:
        for element in flat.tolist():
            texts.append(element.decode())  # noqa: PERF401 - the count so far tells which element is wrong
    except UnicodeDecodeError as error:
        raise invalid_argument(
            f"element {len(texts)} of output '{name}' is not valid UTF-8 and can't be sent via JSON: "
            "ask for the output in the binary data format (binary_data: true)"
        ) from error
    return texts


def _with_non_finite(flat: Array) -> bytes:
    """Return the JSON text of an array with non-finite floats: orjson writes each as null, in order."""
    pieces = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY).split(b"null")
    literals = (_literal(value) for value in flat[~np.isfinite(flat)].tolist())
    return pieces[0] + b"".join(chain.from_iterable(zip(literals, pieces[1:])))


def _literal(value: float) -> bytes:
    if math.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"


_DECODERS: dict[str, Callable[[list[Any], Datatype, str], Array]] = {
    BOOL.name: _decode_booleans,
    BYTES.name: _decode_texts,
    **dict.fromkeys(_INTEGERS, _decode_integers),
    **dict.fromkeys(_FLOATS, _decode_floats),
}
_ELEMENTS: dict[str, tuple[frozenset[type], str]] = {
    BOOL.name: (frozenset({bool}), "true and false"),
    BYTES.name: (frozenset({str}), "strings"),
    **dict.fromkeys(_INTEGERS, (frozenset({int}), "integers of at most 64 bits")),
    **dict.fromkeys(_FLOATS, (frozenset({int, float}), "numbers")),
}
