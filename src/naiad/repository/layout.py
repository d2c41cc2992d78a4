"""Where models lie on disk: repositories, single model folders, single model files.

Owns finding models and their versions. Reads folder names only, never a model or a config.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad.errors import invalid_argument, not_found

CONFIG_FILE = "config.pbtxt"
_NO_VERSIONS = frozenset({"warmup", "initial_state", "configs"})

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model as it was found.

    `config_file` is None when there is none. `versions` are the version folders by number, ascending; of a single model file
    there is version 1 in the file's own folder, and `file_name` is its name there ("" elsewhere). `config` is the ModelConfig
    of a model that isn't on disk, to be read only, None of others.
    """

    name: str
    directory: Path
    config_file: Path | None
    versions: dict[int, Path]
    file_name: str = ""
    config: Any = None


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan found: models by name, and the names that are in more than one place."""

    sources: dict[str, ModelSource]
    duplicates: dict[str, tuple[Path, ...]]

    def with_sources(self, sources: Mapping[str, ModelSource]) -> ScanResult:
        """Return this with `sources`, models that aren't on disk. Raises INVALID_ARGUMENT for a name that is taken."""
        for name in sources:
            if name in self.sources or name in self.duplicates:
                raise invalid_argument(f"model '{name}' is a function and in a model repository, too")
        return ScanResult({**self.sources, **sources}, self.duplicates)


def scan(paths: Iterable[Path], single_file_suffixes: Sequence[str]) -> ScanResult:
    """Return every model below `paths`: each is a repository, a model's folder or a model's file.

    Raises NOT_FOUND for a path that isn't there, INVALID_ARGUMENT for a file that is no model (`single_file_suffixes` are
    known).
    """
    found: dict[str, list[ModelSource]] = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        for source in _sources_at(path, single_file_suffixes):
            found.setdefault(source.name, []).append(source)
    return ScanResult(
        {name: sources[0] for name, sources in found.items() if len(sources) == 1},
        {name: tuple(source.directory for source in sources) for name, sources in found.items() if len(sources) > 1},
    )


def _sources_at(path: Path, suffixes: Sequence[str]) -> list[ModelSource]:
    if not path.exists():
        raise not_found(f"model repository '{path}' does not exist")
    if path.is_file():
        if path.suffix not in suffixes:
            raise invalid_argument(
                f"'{path}' is not a model file that Naiad knows by its name; known endings: {', '.join(suffixes)}"
            )
        return [ModelSource(path.stem, path.parent, None, {1: path.parent}, path.name)]
    if _is_model_folder(path):
        return [_source(path)]
    return [_source(folder) for folder in _folders(path)]


def _folders(path: Path) -> list[Path]:
    """Return the folders in `path` in order of name; hidden ones (a checkout's .git) are no models."""
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise invalid_argument(f"model repository '{path}' can't be read: {error.strerror}") from error


def _is_model_folder(path: Path) -> bool:
    """Tell a model's folder from a repository: it has a config or numbered folders, and no folder in it has either."""
    if (path / CONFIG_FILE).is_file():
        return True
    folders = _folders(path)
    if not any(folder.name.isdigit() for folder in folders):
        return False
    return not any((folder / CONFIG_FILE).is_file() or _versions(folder, is_quiet=True) for folder in folders)


def _source(directory: Path) -> ModelSource:
    config_file = directory / CONFIG_FILE
    return ModelSource(directory.name, directory, config_file if config_file.is_file() else None, _versions(directory))


def _versions(directory: Path, is_quiet: bool = False) -> dict[int, Path]:
    """Return the version folders by number; others are named in a warning, as a mistyped one would be missed otherwise."""
    versions: dict[int, Path] = {}
    for folder in _folders(directory):
        name = folder.name
        if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            versions[int(name)] = folder
        elif name not in _NO_VERSIONS and not is_quiet:
            _log.warning("ignoring folder '%s': a version's name is a whole number without leading zeros", folder)
    return dict(sorted(versions.items()))
