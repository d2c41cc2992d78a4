"""A ModelConfig as plain JSON values, as `/config` shows it, and back.

Owns the form: names as in config.pbtxt, every plain field, list and map printed also when it is empty or 0, blocks and members
of a oneof only when set, 64-bit integers as numbers, enums by name. Doesn't own JSON text on the way out: a frontend writes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from naiad.config import schema
from naiad.errors import invalid_argument
from naiad.proto import Message, message_class

_WHOLE = re.compile(r"-?[0-9]{1,20}")
_FLOAT_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(config: Message) -> dict[str, Any]:
    """Return `config` (or any other message) as JSON values. Map keys are texts, as JSON wants them."""
    shown: dict[str, Any] = {}
    for field in config.DESCRIPTOR.fields:
        is_optional = field.containing_oneof is not None or (field.message_type is not None and not schema.is_repeated(field))
        if not is_optional or config.HasField(field.name):
            shown[field.name] = _shown(field, getattr(config, field.name))
    return shown


def from_json(source: Mapping[str, Any] | str | bytes, name: str = "model configuration") -> Message:
    """Return the ModelConfig that JSON text or values describe; `name` says in errors where they are from.

    Enum names may be in any case, names of fields in protobuf's camelCase too, integers in quotes; null leaves a field out.
    Raises INVALID_ARGUMENT that lists every mistake: unknown members (with the nearest known name), wrong types, numbers out of
    range, members of one oneof together, equal keys in one object.
    """
    values = source if isinstance(source, Mapping) else _parse(source, name)
    config = message_class("inference.ModelConfig")()
    reader = _Reader()
    reader.read_message(config, values, "")
    if reader.problems:
        raise invalid_argument(f"{name}: {'; '.join(reader.problems)}")
    return config


def _shown(field: Any, value: Any) -> Any:
    if schema.is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        return {str(key): _shown_one(of_value, value[key]) for key in sorted(value)}
    if schema.is_repeated(field):
        return [_shown_one(field, item) for item in value]
    return _shown_one(field, value)


def _shown_one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.type == FieldDescriptor.TYPE_FLOAT:
        # The shortest number that reads back as the same 32 bits: 0.1, not 0.10000000149011612.
        return float(str(np.float32(value)))
    return value


def _parse(text: str | bytes, name: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"{name} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise invalid_argument(f"{name} must be a JSON object, got {_kind(values)}")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"member '{next(key for key in keys if keys.count(key) > 1)}' is given twice in one object")
    return members


class _Reader:
    """Fills messages from JSON values and collects what is wrong on the way, so that all mistakes are told at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read_message(self, message: Message, values: object, path: str) -> None:
        """Set the fields of `message`; `path` is "" or ends in a dot."""
        if not isinstance(values, Mapping):
            self.problems.append(f"field '{path.rstrip('.')}' is {_kind(values)}, must be an object")
            return
        descriptor = message.DESCRIPTOR
        seen: set[str] = set()
        for key, value in values.items():
            field = descriptor.fields_by_name.get(key) or descriptor.fields_by_camelcase_name.get(key)
            if field is None:
                where = f" at '{path.rstrip('.')}'" if path else ""
                self.problems.append(schema.unknown_field(str(key), descriptor) + where)
            elif value is not None:
                self._check_unique(field, seen, path)
                self._read_field(message, field, value, path + field.name)

    def _check_unique(self, field: Any, seen: set[str], path: str) -> None:
        """Refuse a field by both of its names, and a second member of a oneof."""
        oneof = field.containing_oneof
        name = oneof.full_name if oneof else field.name
        if name in seen:
            others = f" next to another of {', '.join(member.name for member in oneof.fields)}" if oneof else " twice"
            self.problems.append(f"field '{path}{field.name}' is given{others}")
        seen.add(name)

    def _read_field(self, message: Message, field: Any, value: object, path: str) -> None:
        if schema.is_map(field):
            self._read_map(getattr(message, field.name), field, value, path)
        elif schema.is_repeated(field):
            self._read_list(getattr(message, field.name), field, value, path)
        elif field.message_type is not None:
            target = getattr(message, field.name)
            target.SetInParent()
            self.read_message(target, value, f"{path}.")
        else:
            for plain in self._plain(field, value, path):
                setattr(message, field.name, plain)

    def _read_list(self, target: Any, field: Any, value: object, path: str) -> None:
        if not isinstance(value, (list, tuple)):
            self.problems.append(f"field '{path}' is {_kind(value)}, must be a list")
            return
        for index, item in enumerate(value):
            if field.message_type is not None:
                self.read_message(target.add(), item, f"{path}[{index}].")
            else:
                target.extend(self._plain(field, item, f"{path}[{index}]"))

    def _read_map(self, target: Any, field: Any, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            self.problems.append(f"field '{path}' is {_kind(value)}, must be an object")
            return
        of_key, of_value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for text, item in value.items():
            for key in self._plain(of_key, text, f"{path} key"):
                if of_value.message_type is not None:
                    self.read_message(target[key], item, f"{path}['{text}'].")
                else:
                    for plain in self._plain(of_value, item, f"{path}['{text}']"):
                        target[key] = plain

    def _plain(self, field: Any, value: object, path: str) -> Iterable[Any]:
        """Return the value as `field` holds it, in a list; an empty one after a problem."""
        if field.enum_type is not None:
            plain = _enum(field, value)
            if plain is None:
                self.problems.append(schema.unknown_enum_value(path, value, field))
        else:
            plain = _converter(field)(field, value)
            if plain is None:
                self.problems.append(f"field '{path}' is {_kind(value)}, must be {schema.allowed(field)}")
        return [] if plain is None else [plain]


def _converter(field: Any) -> Callable[[Any, object], Any]:
    if schema.integer_range(field):
        return _integer
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _truth
    return _text if field.type == FieldDescriptor.TYPE_STRING else _number


def _enum(field: Any, value: object) -> int | None:
    """Return the number of an enum value given by name, in any case, or by number."""
    if isinstance(value, str):
        by_name = {name.lower(): known.number for name, known in field.enum_type.values_by_name.items()}
        return by_name.get(value.lower())
    return value if type(value) is int and value in field.enum_type.values_by_number else None


def _integer(field: Any, value: object) -> int | None:
    """Return a whole number in the field's range; protobuf's own JSON writes 64-bit ones in quotes, others may write 4.0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if (isinstance(value, float) and not value.is_integer()) or (isinstance(value, str) and not _WHOLE.fullmatch(value)):
        return None
    low, high = schema.integer_range(field) or (0, 0)
    return int(value) if low <= int(value) <= high else None


def _number(field: Any, value: object) -> float | None:
    if isinstance(value, str):
        return _FLOAT_TEXTS.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    largest = float(np.finfo(np.float32 if field.type == FieldDescriptor.TYPE_FLOAT else np.float64).max)
    is_finite = isinstance(value, int) or math.isfinite(value)
    return None if is_finite and abs(value) > largest else float(value)


def _truth(_field: Any, value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(_field: Any, value: object) -> str | None:
    """Return a text that UTF-8 can hold: JSON can escape half of a surrogate pair."""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return value


def _kind(value: object) -> str:
    """Return a JSON value in a few words, for errors."""
    kinds = {dict: "an object", list: "a list", tuple: "a list", type(None): "null"}
    return kinds.get(type(value)) or json.dumps(value, default=str)[:80]
