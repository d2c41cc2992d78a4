"""The agent `checksum`: a model whose files aren't what the config says isn't loaded.

Parameters are `MD5:<path in the model's folder>` or `SHA256:<path>`, each with the digest in hex.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from naiad.config.plain_file import check_plain_or_folder
from naiad.errors import invalid_argument
from naiad.repository.agents.base import AgentModel, RepositoryAgent

_HASHES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {"MD5": partial(hashlib.md5, usedforsecurity=False), "SHA256": hashlib.sha256}
)
_BLOCK_BYTES = 1 << 20


class ChecksumAgent(RepositoryAgent):
    """See the module."""

    def load(self, model: AgentModel) -> None:
        """Compare every file that is named. Raises INVALID_ARGUMENT for a digest that differs and a parameter that is none."""
        for key, expected in sorted(self.parameters.items()):
            kind, separator, path = key.partition(":")
            if kind not in _HASHES or not separator or not path:
                raise invalid_argument(f"parameter '{key}' must be MD5:<path> or SHA256:<path>, a file in the model's folder")
            digest = self._digest(model.directory, key, path, kind)
            if digest != expected.strip().lower():
                raise invalid_argument(f"the {kind} of '{path}' is {digest}, must be {expected!r} as the config says")

    def _digest(self, directory: Path, key: str, path: str, kind: str) -> str:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise invalid_argument(f"parameter '{key}': the path must be in the model's folder, without '..'")
        digest = _HASHES[kind]()
        check_plain_or_folder(directory / path)
        try:
            with (directory / path).open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
        except OSError as error:
            raise invalid_argument(f"parameter '{key}': '{path}' can't be read: {error.strerror}") from error
        except ValueError as error:
            raise invalid_argument(f"parameter '{key}': {path!r} is no path: {error}") from error
        return str(digest.hexdigest())
