"""Models whose files came with a load request: names, the folder that they are written to, its end.

Owns what such a name may be.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from naiad.errors import internal, invalid_argument
from naiad.repository.control import upload_folders
from naiad.repository.layout import ModelSource

FILE_PREFIX = "file:"

_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
_DATA_FOLDERS = frozenset({"warmup", "initial_state"})
_MAX_NAME_BYTES = 255


class UploadedFolder:
    """See `UploadFolder`. `lock_fd` is of `upload_folders`; `remove` gets the folder's path and blocks no loop."""

    def __init__(self, path: Path, lock_fd: int, remove: Callable[[Path], None]) -> None:
        self.path = path
        self._lock_fd = lock_fd
        self._remove = remove
        self._holders = 1

    def hold(self) -> None:
        """See `UploadFolder.hold`."""
        self._holders += 1

    def let_go(self) -> None:
        """See `UploadFolder.let_go`."""
        self._holders -= 1
        if not self._holders:
            os.close(self._lock_fd)
            self._remove(self.path)


def has_files(parameters: Mapping[str, Any]) -> bool:
    """Return whether a load request carries files."""
    return any(key.startswith(FILE_PREFIX) for key in parameters)


def file_paths(names: Mapping[str, bytes]) -> dict[tuple[str, str], bytes]:
    """Return the contents by folder and file name.

    Raises INVALID_ARGUMENT for a name that isn't file:<version>/<name>, or of a folder for samples and states, so that nothing
    leaves the model's folder.
    """
    paths: dict[tuple[str, str], bytes] = {}
    for key, content in names.items():
        folder, _, name = key.removeprefix(FILE_PREFIX).partition("/")
        is_plain = bool(name) and name not in (".", "..") and not any(mark in name for mark in "/\\\0")
        is_known = folder in _DATA_FOLDERS or _VERSION.fullmatch(folder)
        if not is_known or not is_plain or len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
            raise invalid_argument(
                f"load parameter '{key}' must be 'file:<version>/<name>': a whole number without leading zeros, and a file's "
                "name without '/' that isn't '..'. Files of the config's data go to 'warmup' or 'initial_state' in place of a "
                "version"
            )
        paths[folder, name] = content
    return paths


def write(name: str, files: Mapping[tuple[str, str], bytes], config: Any, remove: Callable[[Path], None]) -> ModelSource:
    """Write a model's files to a new folder and return the model; blocking. `name` has no '/'.

    Raises INTERNAL when they can't be written; nothing is left then.
    """
    try:
        path, lock_fd = upload_folders.make()
    except OSError as error:
        raise internal(f"the files of model '{name}' can't be written: {error}") from error
    try:
        directory = path / name
        directory.mkdir()
        for folder, _ in files:
            (directory / folder).mkdir(exist_ok=True)
        for (folder, file_name), content in files.items():
            (directory / folder / file_name).write_bytes(content)
    except (OSError, ValueError) as error:
        os.close(lock_fd)
        shutil.rmtree(path, ignore_errors=True)
        raise internal(f"the files of model '{name}' can't be written: {error}") from error
    numbers = sorted({int(folder) for folder, _ in files if folder not in _DATA_FOLDERS})
    versions = {number: directory / str(number) for number in numbers}
    return ModelSource(name, directory, None, versions, config=config, upload=UploadedFolder(path, lock_fd, remove))
