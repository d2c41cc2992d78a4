"""What a field of a configuration may hold, in words, and the known name nearest to a mistyped one.

Owns the wording that the readers of config.pbtxt and of JSON share. Reads descriptors only, never values.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from naiad.proto import Message

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_OTHERS = {
    FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_STRING: "a text in quotes",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_DOUBLE: "a number",
}


def allowed(field: Any) -> str:
    """Return what one value of `field` (a FieldDescriptor) may be: "a whole number from 0 to 4294967295"."""
    if field.message_type is not None:
        return f"a block with {', '.join(field.message_type.fields_by_name) or 'nothing in it'}"
    if field.enum_type is not None:
        return f"one of {', '.join(field.enum_type.values_by_name)}"
    limits = integer_range(field)
    return f"a whole number from {limits[0]} to {limits[1]}" if limits else _OTHERS[field.type]


def integer_range(field: Any) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer field, None for a field of another type."""
    return _INTEGERS.get(field.type)


def enum_name(message: Message, field_name: str) -> str:
    """Return the name of the value that an enum field holds: TYPE_FP32."""
    field = message.DESCRIPTOR.fields_by_name[field_name]
    return str(field.enum_type.values_by_number[getattr(message, field_name)].name)


def is_repeated(field: Any) -> bool:
    """Return whether `field` is a list or a map."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else bool(field.label == FieldDescriptor.LABEL_REPEATED)


def is_map(field: Any) -> bool:
    """Return whether `field` is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the name in `known` that is near `name`, "" when none is."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[near[0]]}'?" if near else ""


def unknown_field(name: str, message_type: Any) -> str:
    """Return the text for a field that a message (its Descriptor) doesn't have."""
    known = list(message_type.fields_by_name)
    return f"unknown field '{name}' in {message_type.name}{suggestion(name, known)} (known: {', '.join(known) or 'none'})"


def unknown_enum_value(path: str, value: object, field: Any) -> str:
    """Return the text for an enum value that isn't one; `path` names the field."""
    names = list(field.enum_type.values_by_name)
    return f"field '{path}' is '{value}'{suggestion(str(value), names)} (allowed: {', '.join(names)})"
