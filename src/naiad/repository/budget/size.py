"""How much memory a model version needs, as far as that can be known before it is loaded.

Owns the config's parameter that says it, and the size of the files that else stands for it. Blocking.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from naiad.config.options.kinds import Bytes
from naiad.errors import invalid_argument
from naiad.repository.loader import PreparedModel

MEMORY_PARAMETER = "memory_bytes"


@dataclass(frozen=True, slots=True)
class Need:
    """`declared_bytes` is what the config says, None when it says nothing; `files_bytes` the size of the version's files, 0 for
    a function, which has none of its own.
    """

    declared_bytes: int | None
    files_bytes: int


def need_of(prepared: PreparedModel, version: int) -> Need:
    """Return what a version needs. Raises INVALID_ARGUMENT for a value of the parameter that is no number of bytes."""
    source = prepared.source
    folder = source.versions[version]
    if source.file_name:
        files_bytes = file_bytes(folder / source.file_name)
    else:
        files_bytes = 0 if folder == source.directory else tree_bytes(folder)
    return Need(declared_bytes(prepared), files_bytes)


def declared_bytes(prepared: PreparedModel) -> int | None:
    """Return what the config's parameter says, None without one. Raises INVALID_ARGUMENT for what is no number of bytes."""
    if MEMORY_PARAMETER not in prepared.config.parameters:
        return None
    text, kind = prepared.config.parameters[MEMORY_PARAMETER].string_value, Bytes()
    try:
        size_bytes = kind.parse(text)
    except ValueError:
        size_bytes = 0
    if not size_bytes:
        name = prepared.source.name
        raise invalid_argument(f"model '{name}': parameter '{MEMORY_PARAMETER}' is '{text}', must be {kind.allowed}, over 0")
    return size_bytes


def tree_bytes(folder: Path) -> int:
    """Return the size of all files below `folder`."""
    return sum(file_bytes(Path(place, name)) for place, _, names in os.walk(folder) for name in names)


def file_bytes(path: Path) -> int:
    """Return the size of a file; one that has vanished takes nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def text_of(size_bytes: int) -> str:
    """Return a size for people, with the exact number behind it."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit} ({size_bytes} bytes)"
    return f"{size_bytes} bytes"
