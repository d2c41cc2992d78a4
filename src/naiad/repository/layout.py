"""Where models lie on disk: repositories, single model folders, single model files.

Owns finding models and their versions. Reads folder names only, never a model or a config.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Any, Protocol

from naiad.errors import InferenceServerError, internal, invalid_argument, not_found
from naiad.repository.tree import TreeState

CONFIG_FILE = "config.pbtxt"
CONFIG_FOLDER = "configs"
DUPLICATE = "model appears in two or more repositories"
_MAX_NAME_BYTES = 255
_MAX_VERSION = 2**63 - 1
_NO_VERSIONS = frozenset({"warmup", "initial_state", "configs"})

_log = logging.getLogger("naiad.repository")


class UploadFolder(Protocol):
    """The temporary folder with the files of one load request. Loop thread only."""

    def hold(self) -> None:
        """Keep it until as many calls of `let_go`; whoever made it holds it once."""

    def let_go(self) -> None:
        """Be done with it: after the last one it is removed."""


@dataclass(frozen=True, slots=True)
class Naming:
    """What the operator says of names.

    Of the configs of a model counts `configs/<config_name>.pbtxt` where it is there, config.pbtxt elsewhere and with "".
    `is_namespaced`: models of equal names in several repositories are several models.
    """

    config_name: str = ""
    is_namespaced: bool = False

    def config_file(self, directory: Path) -> Path | None:
        """Return the config that counts in a model's folder, None when there is none."""
        custom = directory / CONFIG_FOLDER / f"{self.config_name}.pbtxt"
        if self.config_name and lexists(custom):
            return custom
        # What isn't a file that can be read is refused when it is read, not taken for a model without a config.
        config_file = directory / CONFIG_FILE
        return config_file if lexists(config_file) else None

    def namespace(self, place: Path) -> str:
        """Return the namespace of the model at `place`: the path of its repository, "" without namespaces."""
        return str(place.parent) if self.is_namespaced else ""


_DEFAULT_NAMING = Naming()


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model as it was found.

    `config_file` is None when there is none. `versions` are the version folders by number, ascending; of a single model file
    there is version 1 in the file's own folder, and `file_name` is its name there ("" elsewhere). `config` is the ModelConfig
    in place of a file's, to be read only, None where the file counts. `state` is what its files looked like, None where that
    isn't known; `upload` the folder that a client's files were written to. `namespace` is "" or the repository's path.
    `problem` says why the folder can't be read, "" where it can.
    """

    name: str
    directory: Path
    config_file: Path | None
    versions: dict[int, Path]
    file_name: str = ""
    config: Any = None
    state: TreeState | None = None
    upload: UploadFolder | None = None
    namespace: str = ""
    problem: str = ""

    @property
    def key(self) -> str:
        """By which a server knows the model, see `key_of`."""
        return key_of(self.namespace, self.name)

    @property
    def config_path(self) -> str:
        """Where in the model's folder its config lies, or would lie."""
        return CONFIG_FILE if self.config_file is None else self.config_file.relative_to(self.directory).as_posix()


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan found: models by key (`key_of`), and the keys that are in more than one place."""

    sources: dict[str, ModelSource]
    duplicates: dict[str, tuple[Path, ...]]

    def with_sources(self, sources: Mapping[str, ModelSource]) -> ScanResult:
        """Return this with `sources`, models that aren't on disk. Raises INVALID_ARGUMENT for a name that is taken."""
        taken = {name_of(key) for key in (*self.sources, *self.duplicates)}
        for name in sources:
            if name in taken:
                raise invalid_argument(f"model '{name}' is a function and in a model repository, too")
        return ScanResult({**self.sources, **sources}, self.duplicates)


def key_of(namespace: str, name: str) -> str:
    """Return by which a server knows a model: its name, behind its namespace if it has one. No two models have the same."""
    return f"{namespace}/{name}" if namespace else name


def name_of(key: str) -> str:
    """Return the name in a key. A name has no '/'."""
    return key.rpartition("/")[2]


def scan(
    paths: Iterable[Path],
    single_file_suffixes: Sequence[str],
    naming: Naming = _DEFAULT_NAMING,
    *,
    is_quiet: bool = False,
) -> ScanResult:
    """Return every model below `paths`: each is a repository, a model's folder or a model's file.

    Raises NOT_FOUND for a path that isn't there, INVALID_ARGUMENT for a file that is no model (`single_file_suffixes` are
    known). Folders that look like mistyped versions are named in the log unless `is_quiet`.
    """
    found: dict[str, list[ModelSource]] = {}
    for place in _places(paths, single_file_suffixes, is_quiet):
        source = _source(place, single_file_suffixes, naming, is_quiet)
        found.setdefault(source.key, []).append(source)
    return ScanResult(
        {key: sources[0] for key, sources in found.items() if len(sources) == 1},
        {key: tuple(source.directory for source in sources) for key, sources in found.items() if len(sources) > 1},
    )


def find(paths: Iterable[Path], single_file_suffixes: Sequence[str], key: str, naming: Naming = _DEFAULT_NAMING) -> ModelSource:
    """Return the model known by `key` below `paths` as it is now.

    Raises INTERNAL with the protocol's text when it isn't there, INVALID_ARGUMENT when it is in more than one place, and what
    `scan` raises.
    """
    looked_at, name = tuple(paths), name_of(key)
    places = [
        place
        for path in _resolved(looked_at, single_file_suffixes)
        for place in _named(path, name, single_file_suffixes)
        if key_of(naming.namespace(place), name) == key
    ]
    if not places:
        raise _nowhere(name, looked_at)
    if len(places) > 1:
        raise invalid_argument(f"load failed for model '{name}': {DUPLICATE}: {', '.join(map(str, places))}")
    return _source(places[0], single_file_suffixes, naming)


def moved(source: ModelSource, directory: Path) -> ModelSource:
    """Return a model with the files of another folder: its config and versions are those that lie there."""
    place = directory.resolve()
    name = "" if source.config_path == CONFIG_FILE else Path(source.config_path).stem
    return replace(
        source,
        directory=place,
        config_file=Naming(name).config_file(place),
        versions=_versions(place),
        file_name="",
    )


def keys(paths: Iterable[Path], single_file_suffixes: Sequence[str], naming: Naming = _DEFAULT_NAMING) -> Counter[str]:
    """Return the keys of the models below `paths` and in how many places each is. Raises what `scan` raises."""
    places = _places(paths, single_file_suffixes, is_quiet=True)
    return Counter(key_of(naming.namespace(place), _name(place, single_file_suffixes)) for place in places)


def keys_of_name(paths: Iterable[Path], single_file_suffixes: Sequence[str], name: str, naming: Naming) -> list[str]:
    """Return the keys of the models called `name`, each once, without a look at others. Raises as `find` does for none."""
    looked_at = tuple(paths)
    resolved = _resolved(looked_at, single_file_suffixes)
    places = [place for path in resolved for place in _named(path, name, single_file_suffixes)]
    if not places:
        raise _nowhere(name, looked_at)
    return list(dict.fromkeys(key_of(naming.namespace(place), name) for place in places))


def _nowhere(name: str, paths: Sequence[Path]) -> InferenceServerError:
    where = ", ".join(map(str, paths)) or "no repository"
    return internal(f"failed to load '{name}', failed to poll from model repository: there is no such model in {where}")


def is_folder_name(name: str) -> bool:
    """Return whether a model's folder may be called so: all that shows names, JSON and protobuf too, can show it."""
    try:
        return len(name.encode()) <= _MAX_NAME_BYTES and not any(ord(letter) < 32 or ord(letter) == 127 for letter in name)
    except UnicodeEncodeError:
        return False


def _places(paths: Iterable[Path], suffixes: Sequence[str], is_quiet: bool) -> list[Path]:
    """Return the folders and files that are models."""
    places: list[Path] = []
    for path in _resolved(paths, suffixes):
        places += [path] if path.is_file() or _is_model_folder(path) else _model_folders(path, is_quiet)
    return places


def _model_folders(path: Path, is_quiet: bool) -> list[Path]:
    """Return the folders in a repository that may be models; what seems to be meant for one is named in the log."""
    found = _folders(path)
    places = [folder for folder in found if is_folder_name(folder.name)]
    if not is_quiet:
        for folder in found:
            if not is_folder_name(folder.name):
                # Escaped: in a log a line's end or half a character would break more than the name.
                _log.warning("ignoring folder %r: a model's name is UTF-8 without control characters", str(folder))
        for entry in sorted(path.iterdir()):
            if entry.is_symlink() and not _exists(entry) and not entry.name.startswith("."):
                _log.warning("ignoring link %r: what it points to is not there", str(entry))
    return places


def _named(path: Path, name: str, suffixes: Sequence[str]) -> list[Path]:
    """Return the model `name` at or below `path`, without a look at all the others of a repository."""
    if path.is_file() or _is_model_folder(path):
        return [path] if _name(path, suffixes) == name else []
    folder = path / name
    return [folder] if _is_folder(folder) and not name.startswith(".") else []


def _resolved(paths: Iterable[Path], suffixes: Sequence[str]) -> list[Path]:
    """Return each path once. Raises for one that isn't there or is no model file."""
    resolved = list(dict.fromkeys(path.resolve() for path in paths))
    for path in resolved:
        if not path.exists():
            raise not_found(f"model repository '{path}' does not exist")
        if path.is_file() and path.suffix not in suffixes:
            raise invalid_argument(
                f"'{path}' is not a model file that Naiad knows by its name; known endings: {', '.join(suffixes)}"
            )
    return resolved


def _name(place: Path, suffixes: Sequence[str]) -> str:
    return place.stem if place.suffix in suffixes and place.is_file() else place.name


def _folders(path: Path) -> list[Path]:
    """Return the folders in `path` in order of name; hidden ones (a checkout's .git) are no models."""
    try:
        return sorted(entry for entry in path.iterdir() if _is_folder(entry) and not entry.name.startswith("."))
    except OSError as error:
        raise invalid_argument(f"folder '{path}' can't be read: {error.strerror}") from error


def _is_model_folder(path: Path) -> bool:
    """Tell a model's folder from a repository: it has a config or numbered folders, and no folder in it has either."""
    if lexists(path / CONFIG_FILE):
        return True
    folders = _folders(path)
    if not any(folder.name.isdigit() for folder in folders):
        return False
    return not any(lexists(folder / CONFIG_FILE) or _looks_like_model(folder) for folder in folders)


def _looks_like_model(folder: Path) -> bool:
    try:
        return bool(_versions(folder, is_quiet=True))
    except InferenceServerError:
        # Which model this is, is said when it is read.
        return False


def _is_folder(path: Path) -> bool:
    """Tell whether a folder lies at `path`, also where its name is too long or it can't be looked at: it isn't one then."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True


def _source(place: Path, suffixes: Sequence[str], naming: Naming, is_quiet: bool = False) -> ModelSource:
    name = _name(place, suffixes)
    if name != place.name:
        return ModelSource(name, place.parent, None, {1: place.parent}, place.name, namespace=naming.namespace(place))
    problem, versions = "", {}
    try:
        versions = _versions(place, is_quiet)
    except InferenceServerError as error:
        # The others of the repository are none the worse for it.
        problem = error.message
    return ModelSource(name, place, naming.config_file(place), versions, namespace=naming.namespace(place), problem=problem)


def _versions(directory: Path, is_quiet: bool = False) -> dict[int, Path]:
    """Return the version folders by number; others are named in a warning, as a mistyped one would be missed otherwise."""
    versions: dict[int, Path] = {}
    for folder in _folders(directory):
        name = folder.name
        if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and int(name) <= _MAX_VERSION:
            versions[int(name)] = folder
        elif name not in _NO_VERSIONS and not is_quiet:
            _log.warning("ignoring folder '%s': a version's name is a whole number below 2^63 without leading zeros", folder)
    return dict(sorted(versions.items()))
