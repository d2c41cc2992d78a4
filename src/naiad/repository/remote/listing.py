"""What lies in a remote folder: its models, their files, and how to tell that a file has changed.

Owns which names may come to this machine and what a store says about a content. Copies nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from naiad.errors import invalid_argument

_CONFIG_FILE = "config.pbtxt"
_MD5 = re.compile(r"[0-9a-f]{32}")
_STATES = (
    "ETag",
    "etag",
    "md5Hash",
    "sha256",
    "blob_id",
    "oid",
    "generation",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
    "Last-Modified",
    "Content-MD5",
    "Digest",
)
_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file by its path in the store and its `size` in bytes (None: unknown).

    `state` changes with the content; where the store says nothing about that, it is new with each listing.

    `md5` is the content's digest in hex where the store gives one, "" elsewhere; `is_etag`
    says that it was read from an ETag, which is a digest with most stores and not with all.
    """

    remote_path: str
    size: int | None
    state: str
    md5: str = ""
    is_etag: bool = False


@dataclass(slots=True)
class RemoteModel:
    """A model's files by their path in its folder, and its folders."""

    files: dict[str, RemoteFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def digest(self) -> str:
        """Return what stands for these files, folders and states, in hex."""
        rows = [f"{path}\0{file.size}\0{file.state}" for path, file in sorted(self.files.items())]
        rows += sorted(f"{path}/" for path in self.folders)
        return hashlib.blake2b("\n".join(rows).encode(errors="surrogateescape"), digest_size=16).hexdigest()


def models_of(found: Mapping[str, Mapping[str, Any]], root: str, single_name: str) -> dict[str, RemoteModel]:
    """Return the models among `found`, what a file system says by path about all below `root`.

    A folder with a config.pbtxt, or with numbers as its only folders, is one model, called `single_name`. Files that lie
    beside models and hidden folders don't count. Raises INVALID_ARGUMENT for names that could lead out of a folder, links and
    a file where a folder is.
    """
    whole = RemoteModel()
    for remote_path, info in found.items():
        path = _relative(remote_path, root)
        if not path:
            continue
        _check_name(path, remote_path)
        if info.get("islink") or info.get("type") not in ("file", "directory"):
            raise invalid_argument(f"'{remote_path}' is neither a file nor a folder; links are not copied")
        if info["type"] == "directory" or remote_path.endswith("/"):
            whole.folders.add(path)
        else:
            whole.files[path] = _file(remote_path, info)
    _add_parents(whole)
    top = {path.partition("/")[0] for path in whole.folders}
    if _CONFIG_FILE in whole.files or (top and all(name.isdigit() for name in top)):
        return {single_name: whole}
    return {name: _part(whole, name) for name in sorted(top) if not name.startswith(".")}


def is_known(info: Mapping[str, Any]) -> bool:
    """Return whether a listing says of a file how large it is and in which state."""
    return info.get("size") is not None and any(info.get(key) not in (None, "") for key in _STATES)


def _relative(path: str, root: str) -> str:
    stripped, base = path.strip("/"), root.strip("/")
    if stripped == base:
        return ""
    if not stripped.startswith(f"{base}/"):
        raise invalid_argument(f"'{path}' is not below '{root}', where it was listed")
    return stripped[len(base) + 1 :]


def _check_name(path: str, remote_path: str) -> None:
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part or "\\" in part or len(part.encode(errors="replace")) > _MAX_NAME_BYTES:
            raise invalid_argument(
                f"'{remote_path}' can't be copied: a part of its name is empty, '.', '..', longer than {_MAX_NAME_BYTES} bytes "
                "or has a backslash or a zero byte in it"
            )


def _add_parents(model: RemoteModel) -> None:
    for path in (*model.files, *model.folders):
        parts = path.split("/")
        model.folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    both = sorted(model.folders & set(model.files))
    if both:
        raise invalid_argument(f"'{model.files[both[0]].remote_path}' is both a file and a folder, and can't be copied")


def _part(whole: RemoteModel, name: str) -> RemoteModel:
    start = len(name) + 1
    return RemoteModel(
        {path[start:]: file for path, file in whole.files.items() if path.startswith(f"{name}/")},
        {path[start:] for path in whole.folders if path.startswith(f"{name}/")},
    )


def _file(remote_path: str, info: Mapping[str, Any]) -> RemoteFile:
    size = info.get("size")
    state = "\0".join(f"{key}={info[key]}" for key in _STATES if info.get(key) not in (None, ""))
    digest = _md5_of(info)
    if digest:
        return RemoteFile(remote_path, size, f"md5={digest}", digest)
    etag = str(info.get("ETag") or info.get("etag") or "").strip('"').lower()
    if _MD5.fullmatch(etag):
        return RemoteFile(remote_path, size, f"etag={etag}", etag, is_etag=True)
    return RemoteFile(remote_path, size, state or f"unknown={secrets.token_hex(8)}")


def _md5_of(info: Mapping[str, Any]) -> str:
    """Return the digest that a store promises (Google's md5Hash, Azure's content_md5), in hex; "" without one."""
    settings: Any = info.get("content_settings") or {}
    given = (
        info.get("md5Hash") or info.get("content_md5") or (settings.get("content_md5") if isinstance(settings, dict) else None)
    )
    try:
        raw = base64.b64decode(given, validate=True) if isinstance(given, str) else bytes(given or b"")
    except (binascii.Error, TypeError, ValueError):
        return ""
    return raw.hex() if len(raw) == 16 else ""
