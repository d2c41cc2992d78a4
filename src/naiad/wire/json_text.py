"""JSON text to Python values, with the literals that JSON lacks and errors that tell where they are.

Owns syntax: what is JSON and what isn't. A fast reader takes all ordinary text; what it refuses goes to a slow one, which also
accepts NaN, Infinity, Inf (with a minus sign too) and a UTF-8 byte order mark, and otherwise says what is wrong and where.
Of two equal keys the last one counts. Integers beyond 64 bits may come back as floats.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from naiad.errors import InferenceServerError, invalid_argument

Buffer = bytes | bytearray | memoryview

MAX_SHOWN_LENGTH = 100

_BOM = "\ufeff"
_INF = re.compile(r"\bInf\b")
# What matters to tell literals from the insides of strings. No repetition in it: a hostile text costs linear time.
_INF_TOKEN = re.compile(r'\\.|"|\bInf\b', re.DOTALL)
_GROWTH = len("Infinity") - len("Inf")
# An escaped character, a surrogate pair, and (the group) half of one.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def parse(text: Buffer) -> Any:
    """Return the value that `text` holds.

    Raises INVALID_ARGUMENT "failed to parse the request JSON buffer: <reason> at <byte offset>"; without offset for a number
    or a nesting that no value can hold.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_slowly(text)


def parse_object(text: Buffer) -> dict[str, Any]:
    """Return the JSON object that `text` holds; raises like `parse`, also for a value of another type."""
    value = parse(text)
    if type(value) is not dict:
        raise invalid_argument(f"failed to parse the request JSON buffer: it must be a JSON object, got {describe(value)}")
    return value


def describe(value: Any) -> str:
    """Return `value` as an error message shows it: its JSON type, and the value itself when it is short."""
    if isinstance(value, str):
        return f"string {value[:MAX_SHOWN_LENGTH]!r}" + ("…" if len(value) > MAX_SHOWN_LENGTH else "")
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, list):
        return f"array of {len(value)} element(s)"
    if isinstance(value, dict):
        return f"object of {len(value)} member(s)"
    return "null" if value is None else f"number {str(value)[:MAX_SHOWN_LENGTH]}"


def _parse_slowly(buffer: Buffer) -> Any:
    try:
        text = str(buffer, "utf-8")
    except UnicodeDecodeError as error:
        raise _bad_json(f"invalid UTF-8 ({error.reason})", error.start) from error
    if not text:
        raise _bad_json("the document is empty", 0)
    inf_positions: list[int] = []
    # The mark becomes a space and not nothing: offsets stay what they are.
    source = _spell_out_inf(" " + text[1:] if text.startswith(_BOM) else text, inf_positions)
    try:
        value = json.loads(source, parse_float=_finite_float)
    except json.JSONDecodeError as error:
        grown = sum(position + _GROWTH * index < error.pos for index, position in enumerate(inf_positions))
        raise _bad_json(error.msg, _byte_offset(text, error.pos - _GROWTH * grown)) from error
    except RecursionError as error:
        raise _bad_json("arrays and objects are nested more than 100 deep") from error
    except ValueError as error:
        # From `_finite_float`, or from Python's own bound on the digits of an integer.
        raise _bad_json("a number in it is too large") from error
    _refuse_half_pairs(text)
    return value


def _spell_out_inf(text: str, positions: list[int]) -> str:
    """Return `text` with the literal Inf written as Infinity; its places in `text` are added to `positions`."""
    is_in_string = False

    def spelled_out(match: re.Match[str]) -> str:
        nonlocal is_in_string
        found = match[0]
        is_in_string ^= found == '"'
        if found != "Inf" or is_in_string:
            return found
        positions.append(match.start())
        return "Infinity"

    return _INF_TOKEN.sub(spelled_out, text) if _INF.search(text) else text


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text[:MAX_SHOWN_LENGTH])
    return value


def _refuse_half_pairs(text: str) -> None:
    """Raise for an escaped half of a surrogate pair: it is no character, and no UTF-8 text can hold it."""
    for match in _ESCAPE.finditer(text):
        if match[1]:
            raise _bad_json(f"{match[1]} is half of a surrogate pair", _byte_offset(text, match.start()))


def _byte_offset(text: str, position: int) -> int:
    return len(text[:position].encode())


def _bad_json(reason: str, offset: int | None = None) -> InferenceServerError:
    where = "" if offset is None else f" at {offset}"
    return invalid_argument(f"failed to parse the request JSON buffer: {reason}{where}")
