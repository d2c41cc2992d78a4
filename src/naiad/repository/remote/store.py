"""The file system behind an address, opened when it is needed: the only module that knows fsspec.

Owns which package serves which scheme, and that what it raises becomes a text about the repository. Everything blocks.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, not_found, unavailable
from naiad.repository.remote.address import RemoteAddress
from naiad.repository.remote.credentials import storage_options
from naiad.repository.remote.listing import RemoteModel, is_known, models_of

_EXTRAS = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "as": ("adlfs", "azure")}
_PROTOCOLS = {"as": "abfs"}


class Store:
    """One remote folder. Safe on several threads at once."""

    def __init__(self, address: RemoteAddress, files: Any) -> None:
        self.address = address
        self._files = files

    def models(self) -> dict[str, RemoteModel]:
        """Return the models of the folder as they are now. Raises NOT_FOUND, UNAVAILABLE or INVALID_ARGUMENT."""
        root = self.address.path
        try:
            self._files.invalidate_cache()
            found = self._files.find(root, withdirs=True, detail=True)
            found = {path: self._with_state(path, info) for path, info in found.items()}
        except FileNotFoundError as error:
            raise self._nothing() from error
        except Exception as error:
            raise self._failure("can't be listed", error) from error
        if not found:
            raise self._nothing()
        if set(found) == {root} and found[root].get("type") == "file":
            raise invalid_argument(f"model repository '{self.address.text}' is a file, must be a folder")
        try:
            return models_of(found, self._root_as_listed(root), self.address.name)
        except InferenceServerError as error:
            raise InferenceServerError(error.code, f"model repository '{self.address.text}': {error.message}") from error

    def fetch(self, remote_path: str, target: Path) -> None:
        """Write one file's content to `target`. Raises UNAVAILABLE for what the store does, and for a disk that is full."""
        try:
            self._files.get_file(remote_path, os.fspath(target))
        except Exception as error:
            raise self._failure(f"'{remote_path}' can't be copied", error) from error

    def _with_state(self, path: str, info: dict[str, Any]) -> dict[str, Any]:
        """Ask for a file alone where the listing says too little, as that of a web server."""
        if info.get("type") != "file" or is_known(info):
            return info
        try:
            return {**info, **self._files.info(path)}
        except FileNotFoundError:
            # It went after it was listed: fetching it says so, and the model stays as it is.
            return info

    def _root_as_listed(self, root: str) -> str:
        return str(self._files._strip_protocol(root))

    def _nothing(self) -> InferenceServerError:
        return not_found(f"model repository '{self.address.text}' does not exist or has nothing in it")

    def _failure(self, what: str, error: Exception) -> InferenceServerError:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "no space is left in the model cache"
        else:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        return unavailable(f"model repository '{self.address.text}': {what}: {reason}")


def open_store(address: RemoteAddress, environment: Mapping[str, str]) -> Store:
    """Return the store of an address; the package for it is imported here.

    Raises UNAVAILABLE naming the extra to install, INVALID_ARGUMENT for a scheme that nobody knows or for bad credentials.
    """
    options = storage_options(address, environment)
    package, extra = _EXTRAS.get(address.scheme, ("fsspec", "remote"))
    try:
        importlib.import_module(package)
        fsspec = importlib.import_module("fsspec")
    except ImportError as error:
        raise unavailable(
            f"model repository '{address.text}' needs a package that can't be imported ({error}): pip install 'naiad[{extra}]'"
        ) from error
    protocol = _PROTOCOLS.get(address.scheme, address.scheme)
    try:
        return Store(address, fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **options))
    except ImportError as error:
        raise unavailable(f"model repository '{address.text}' needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise invalid_argument(f"model repository '{address.text}' can't be opened: {error}") from error
    except Exception as error:
        # Credentials are looked up here by foreign code; what it raises must not look like a fault of the server.
        raise unavailable(f"model repository '{address.text}' can't be opened: {type(error).__name__}: {error}") from error
