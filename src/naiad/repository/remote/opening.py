"""The repositories that the options name as folders on this machine; those with URLs are copied first.

Owns where copies go. Blocking: it runs before the event loop does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from naiad.config.options import ServerOptions
from naiad.repository.remote.address import RemoteAddress, parse_address
from naiad.repository.remote.repository import RemoteRepository
from naiad.repository.remote.store import open_store

_MOUNTS = {"s3": "TRITON_AWS_MOUNT_DIRECTORY", "gs": "TRITON_GCS_MOUNT_DIRECTORY", "as": "TRITON_AZURE_MOUNT_DIRECTORY"}


@dataclass(frozen=True, slots=True)
class Repositories:
    """`paths` are all repositories in the order they were given, `remote` those of them that follow a URL."""

    paths: tuple[Path, ...] = ()
    remote: tuple[RemoteRepository, ...] = ()


def open_repositories(options: ServerOptions, environment: Mapping[str, str]) -> Repositories:
    """Return the repositories, those with URLs copied as they are now. Raises InferenceServerError naming the URL."""
    places = [
        place if isinstance(place, Path) else _remote(parse_address(place), options, environment)
        for place in options.model_repository
    ]
    paths = tuple(place.sync() if isinstance(place, RemoteRepository) else place for place in places)
    return Repositories(paths, tuple(place for place in places if isinstance(place, RemoteRepository)))


def cache_directory(address: RemoteAddress, given: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the folder for copies: the flag's, Triton's variable for this kind of store, or the user's cache."""
    if given is not None:
        return given.absolute()
    mount = environment.get(_MOUNTS.get(address.scheme, ""), "")
    if mount:
        return Path(mount).absolute()
    base = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "naiad" / "models"


def _remote(address: RemoteAddress, options: ServerOptions, environment: Mapping[str, str]) -> RemoteRepository:
    cache = cache_directory(address, options.model_cache_directory, environment)
    return RemoteRepository(address, cache, partial(open_store, address, environment))
