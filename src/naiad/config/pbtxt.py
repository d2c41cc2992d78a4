"""Read and write config.pbtxt: a ModelConfig in protobuf's text format.

Owns the errors of that file: where (file:line:column), which field, what is allowed, and the nearest known name. protobuf does
the parsing. Doesn't own what the values mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding, refuse
from naiad.config.plain_file import read_plain_file
from naiad.config.positions import field_positions, unknown_fields
from naiad.errors import invalid_argument
from naiad.proto import Message, message_class

MOST_CONFIG_BYTES = 4 << 20
"""Reading takes a second for each megabyte, and holds up others while it does."""

_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[A-Za-z_]\w*|[-+.\w]+|\S""")
_PLACEHOLDER = re.compile(r"\$\{[^}\n]*\}|\$\w+|\{\{[^\n]*?\}\}|\{%[^\n]*?%\}|<%[^\n]*?%>")
_BAD_VALUE = re.compile(
    r"Couldn't parse|Value out of range|Expected string but found|String missing ending quote|Expected \"true\" or \"false\""
    r"|Invalid field value|Expected \"\{\"|Enum type"
)
_NO_FIELD = re.compile(r'has no field named "(.*)"\.')
_TWICE = re.compile(r'should not have multiple "(\w+)" fields')
_TWO_OF_ONE = re.compile(r'Field "(\w+)" is specified along with field "(\w+)"')


@dataclass(frozen=True, slots=True)
class _Place:
    """Where parsing stopped: the descriptor of the block, and the field in it (None at the block's start)."""

    path: str
    block: Any
    field: Any


def read_config(path: Path) -> Message:
    """Return the ModelConfig in the file at `path`. Raises INVALID_ARGUMENT with file, line and column of what is wrong."""
    return parse_config(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text of the file at `path`, its lines ended by a newline alone.

    Raises INVALID_ARGUMENT when it can't be read, is no plain file, is larger than MOST_CONFIG_BYTES or isn't UTF-8.
    """
    content = read_plain_file(path, MOST_CONFIG_BYTES)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise invalid_argument(f"{path}: is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from error


def parse_config(text: str, file_name: str) -> Message:
    """Return the ModelConfig in `text`; `file_name` is for the errors only. Raises INVALID_ARGUMENT as `read_config` does."""
    config = message_class("inference.ModelConfig")()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        refuse(_mistakes(error, text, file_name))
    unknown = list(_unknown_enum_values(config, ()))
    if unknown:
        places = field_positions(text)
        refuse(Finding(f"{file_name}:{places[path]}: {what}", path) for path, what in unknown)
    return config


def write_config(config: Message) -> str:
    """Return `config` as the text of a config.pbtxt that reads back as an equal message."""
    return str(text_format.MessageToString(config, as_utf8=True))


def _mistakes(error: text_format.ParseError, text: str, file_name: str) -> list[Finding]:
    """Return what is wrong in the file: all unknown fields at once, and behind them the first mistake of another kind."""
    first = Finding(_explain(error, text, file_name))
    if not _NO_FIELD.search(str(error)) or _PLACEHOLDER.search(first.text):
        return [first]
    try:
        text_format.Parse(text, message_class("inference.ModelConfig")(), allow_unknown_field=True)
    except text_format.ParseError as other:
        return [first, Finding(_explain(other, text, file_name))]
    except RecursionError:
        # protobuf goes into unknown blocks without a limit of its own; only the first is known then.
        return [first]
    return [
        Finding(f"{file_name}:{unknown.position}: {schema.unknown_field(unknown.name, unknown.block)}")
        for unknown in unknown_fields(text)
    ]


def _explain(error: text_format.ParseError, text: str, file_name: str) -> str:
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    lines = text.split("\n")
    position = sum(len(previous) + 1 for previous in lines[: line - 1]) + column - 1
    where = f"{file_name}:{line}:{column}"
    placeholder = _PLACEHOLDER.match(text, position)
    if placeholder:
        return f"{where}: '{placeholder[0]}' is a template's placeholder that nobody has filled in"
    return f"{where}: {_reason(str(error), _place(text, position), text[position:])}"


def _reason(message: str, place: _Place, rest: str) -> str:
    """Return what is wrong in our words, by what protobuf's `message` says; its own words where no rule fits."""
    token = _TOKEN.search(rest)
    found = token[0] if token else "the end of the file"
    no_field = _NO_FIELD.search(message)
    if no_field:
        return schema.unknown_field(no_field[1], place.block)
    twice = _TWICE.search(message)
    if twice:
        return f"field '{twice[1]}' is given twice, it may be given once"
    two = _TWO_OF_ONE.search(message)
    if two:
        return f"fields '{two[2]}' and '{two[1]}' exclude each other, give one of them"
    if "codec can't decode" in message:
        return f"field '{place.path}' ends here and is not UTF-8 text"
    if place.field is None or not _BAD_VALUE.search(message):
        where = f" (in field '{place.path}')" if place.path else ""
        return f"syntax error at {found}: {message.rsplit(': ', 1)[-1]}{where}"
    if place.field.enum_type is not None:
        return schema.unknown_enum_value(place.path, found, place.field)
    return f"field '{place.path}' is {found}, must be {schema.allowed(place.field)}"


def _place(text: str, position: int) -> _Place:
    """Follow the names and brackets of `text` up to `position`."""
    block = message_class("inference.ModelConfig").DESCRIPTOR
    field: Any = None
    outer: list[tuple[Any, Any]] = []
    tokens = [match for match in _TOKEN.finditer(text) if not match[0].startswith("#")]
    for match, following in zip(tokens, [*(token[0] for token in tokens[1:]), ""]):
        if match.start() >= position:
            break
        word = match[0]
        if word in ("{", "<") and field is not None and field.message_type is not None:
            outer.append((block, field))
            block, field = field.message_type, None
        elif word in ("}", ">") and outer:
            block, field = outer.pop()
        elif following in (":", "{", "[", "<") and word in block.fields_by_name:
            field = block.fields_by_name[word]
    names = [outer_field.name for _, outer_field in outer] + ([field.name] if field is not None else [])
    return _Place(".".join(names), block, field)


def _unknown_enum_values(message: Message, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield path and text of each enum value below `message` that has no name: text format takes any number."""
    for field, value in message.ListFields():
        inside: FieldPath = (*path, field.name)
        if schema.is_map(field):
            is_block = field.message_type.fields_by_name["value"].message_type is not None
            items = [((*inside, key), value[key]) for key in value] if is_block else []
        elif schema.is_repeated(field):
            items = [((*inside, index), item) for index, item in enumerate(value)]
        else:
            items = [(inside, value)]
        for where, item in items:
            if field.message_type is not None:
                yield from _unknown_enum_values(item, where)
            elif field.enum_type is not None and item not in field.enum_type.values_by_number:
                name = ".".join(part for part in where if isinstance(part, str))
                yield where, schema.unknown_enum_value(name, item, field)
