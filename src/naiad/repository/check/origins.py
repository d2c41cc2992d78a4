"""Where each value of a completed config comes from: a line of the file, auto-complete, a default, the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from naiad.config import schema
from naiad.config.findings import FieldPath
from naiad.config.positions import nearest
from naiad.repository.check.model import CheckedModel, path_text
from naiad.repository.check.steps import FROM_FILE, FROM_MODEL
from naiad.repository.loader import DEFAULT_MAX_BATCH_SIZE_SETTING


@dataclass(frozen=True, slots=True)
class Origin:
    """One value: the field's path in words, the value as config.pbtxt has it, and where it comes from."""

    field: str
    value: str
    origin: str
    is_written: bool


def origins(model: CheckedModel, settings: Mapping[str, str]) -> list[Origin]:
    """Return each value of a model's completed config in the order of the fields; `settings` are the backend's."""
    stages = [(stage.origin, dict(_values(stage.config, ()))) for stage in model.stages]
    found = []
    for path, value in _values(model.config, ()):
        origin = stages[-1][0]
        for name, values in reversed(stages):
            if values.get(path) != value:
                break
            origin = name
        found.append(Origin(path_text(path), value, _words(model, path, origin, settings), origin == FROM_FILE))
    return found


def _words(model: CheckedModel, path: FieldPath, origin: str, settings: Mapping[str, str]) -> str:
    if origin == FROM_FILE:
        return f"{model.place}:{nearest(model.positions, path)}"
    if origin == FROM_MODEL and path == ("max_batch_size",) and DEFAULT_MAX_BATCH_SIZE_SETTING in settings:
        return f"command line: --backend-config {DEFAULT_MAX_BATCH_SIZE_SETTING}={settings[DEFAULT_MAX_BATCH_SIZE_SETTING]}"
    return origin


def _values(message: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield each plain value that is set, and each block that is set and empty, with its path."""
    for field, value in message.ListFields():
        inside: FieldPath = (*path, field.name)
        if schema.is_map(field):
            of_value = field.message_type.fields_by_name["value"]
            items = [((*inside, key), value[key]) for key in sorted(value)]
        else:
            of_value = field
            is_list = schema.is_repeated(field)
            items = [((*inside, index), item) for index, item in enumerate(value)] if is_list else [(inside, value)]
        for where, item in items:
            if of_value.message_type is None:
                yield where, _text(of_value, item)
            elif item.ListFields():
                yield from _values(item, where)
            else:
                yield where, "{ }"


def _text(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
