"""Read label files: one label a line, the line's index is the class.

A carriage return before the line's end, a byte order mark and a last line's missing end aren't part of a label; an empty line
is an empty label. No other character is special: `a:b` is one label.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from naiad.config.plain_file import read_plain_file
from naiad.errors import InferenceServerError, invalid_argument

_MOST_BYTES = 64 << 20


def read_labels(directory: Path, file_name: str, output_name: str) -> tuple[str, ...]:
    """Return the labels of an output; `file_name` is relative to the model's folder `directory` and may not leave it.

    Raises INVALID_ARGUMENT that names the file when it is elsewhere, missing, unreadable or not UTF-8.
    """
    where = f"label_filename '{file_name}' of output '{output_name}'"
    path = PurePosixPath(file_name)
    if path.is_absolute() or ".." in path.parts or "\0" in file_name:
        raise invalid_argument(f"{where} must be a path inside the model's folder {directory}, without '..'")
    try:
        text = read_plain_file(directory / path, _MOST_BYTES).decode("utf-8-sig")
    except InferenceServerError as error:
        raise invalid_argument(f"{where}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise invalid_argument(f"{where} is not UTF-8 text: byte {error.start} of {directory / path}") from error
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return tuple(line.removesuffix("\r") for line in lines)
