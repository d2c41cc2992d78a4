"""Addresses of remote repositories: what Triton's URLs and those of fsspec say.

Owns the reading of a URL. Opens no connection and knows no credentials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from naiad.errors import InferenceServerError, invalid_argument

_S3_ENDPOINT = re.compile(r"s3://(?:(https?)://)?([0-9A-Za-z.\-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})/(.+)")
_LOCAL = frozenset({"file", "local"})
_WITH_HOST = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A repository by its URL.

    `text` is the URL as it was given, `scheme` its first part, `path` what the file system of that scheme calls the folder.
    `endpoint` is the store's own address, `account` that of Azure; "" where there is none.
    """

    text: str
    scheme: str
    path: str
    endpoint: str = ""
    account: str = ""

    @property
    def name(self) -> str:
        """Return the last part of the path: a model's name, where the folder is a single model."""
        return self.path.rstrip("/").rpartition("/")[2]


def parse_address(text: str) -> RemoteAddress:
    """Return the address that a URL stands for. Raises INVALID_ARGUMENT with what is wrong; it never shows a password."""
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise invalid_argument(f"model repository '{text}' is no URL")
    authority = rest.partition("://")[2] or rest
    if "@" in authority.partition("/")[0]:
        raise invalid_argument(
            f"a model repository at {scheme}:// has a user or password in its URL: give credentials in the environment instead"
        )
    scheme = scheme.lower()
    if scheme in _LOCAL:
        raise invalid_argument(f"model repository '{text}' is on this machine: give the path without {scheme}://")
    if scheme == "s3":
        return _s3(text, rest)
    if scheme == "as":
        return _azure(text, rest)
    if scheme in _WITH_HOST:
        _check_host(text)
        return RemoteAddress(text, scheme, text.rstrip("/") + "/")
    return RemoteAddress(text, scheme, _folder(text, rest))


def _s3(text: str, rest: str) -> RemoteAddress:
    endpoint = _S3_ENDPOINT.fullmatch(text)
    if endpoint is not None:
        protocol, host, port, path = endpoint.groups()
        if not 0 < int(port) < 65536:
            raise invalid_argument(f"model repository '{text}': the port is {port}, must be from 1 to 65535")
        return RemoteAddress(text, "s3", _folder(text, path), f"{protocol or 'http'}://{host}:{port}")
    if "://" in rest:
        raise invalid_argument(f"model repository '{text}' must be s3://bucket/path or s3://https://host:port/bucket/path")
    return RemoteAddress(text, "s3", _folder(text, rest))


def _azure(text: str, rest: str) -> RemoteAddress:
    account, _, path = rest.partition("/")
    if not account or not path.strip("/"):
        raise invalid_argument(f"model repository '{text}' must be as://account/container/path")
    return RemoteAddress(text, "as", _folder(text, path), account=account)


def _folder(text: str, path: str) -> str:
    cleaned = path.strip("/")
    if not cleaned or any(part in ("", ".", "..") for part in cleaned.split("/")):
        raise invalid_argument(f"model repository '{text}' names no folder: it has an empty part, '.' or '..' in its path")
    return cleaned


def _check_host(text: str) -> None:
    try:
        host = urlsplit(text).hostname
    except ValueError as error:
        raise _bad_url(text, str(error)) from error
    if not host:
        raise _bad_url(text, "it names no host")


def _bad_url(text: str, reason: str) -> InferenceServerError:
    return invalid_argument(f"model repository '{text}' is no URL: {reason}")
