"""With what a store is opened: Triton's environment variables and its file of credentials, as a file system's options.

Owns which of them counts. What isn't said here, the store's own package finds as its vendor documents (AWS_* and ~/.aws,
GOOGLE_APPLICATION_CREDENTIALS, an attached identity). Logs and shows no secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from naiad.errors import invalid_argument
from naiad.repository.remote.address import RemoteAddress

CREDENTIAL_FILE = "TRITON_CLOUD_CREDENTIAL_PATH"


def storage_options(address: RemoteAddress, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the file system of an address is made with; blocking when there is a file of credentials.

    Raises INVALID_ARGUMENT for a file that can't be read or says something else than is known.
    """
    given = _from_file(address, environment)
    if address.scheme == "s3":
        return _s3(address, given)
    if address.scheme == "gs":
        return {} if given is None else {"token": _text(given, "gs")}
    if address.scheme == "as":
        return _azure(address, given, environment)
    return {}


def _s3(address: RemoteAddress, given: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    client: dict[str, str] = {}
    if address.endpoint:
        client["endpoint_url"] = address.endpoint
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if given is not None:
        fields = _fields(given, "s3", ("secret_key", "key_id", "region", "session_token", "profile"))
        if fields.get("key_id"):
            options |= {"key": fields["key_id"], "secret": fields.get("secret_key", "")}
        if fields.get("session_token"):
            options["token"] = fields["session_token"]
        if fields.get("profile"):
            options["profile"] = fields["profile"]
        if fields.get("region"):
            client["region_name"] = fields["region"]
    return {**options, "client_kwargs": client} if client else options


def _azure(address: RemoteAddress, given: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    account, key = address.account, environment.get("AZURE_STORAGE_KEY", "")
    if given is not None:
        fields = _fields(given, "as", ("account_str", "account_key"))
        account, key = fields.get("account_str") or account, fields.get("account_key", "")
    options: dict[str, Any] = {"account_name": account.partition(".")[0]}
    if "." in account:
        options["account_host"] = account
    if key:
        return {**options, "account_key": key}
    is_managed = environment.get("AZURE_STORAGE_AUTH_TYPE", "") == "managed_identity"
    return {**options, "anon": not is_managed}


def _from_file(address: RemoteAddress, environment: Mapping[str, str]) -> Any:
    """Return what the file says for the longest prefix of the address; None without a file or a prefix that fits."""
    path = environment.get(CREDENTIAL_FILE, "")
    if not path or address.scheme not in ("s3", "gs", "as"):
        return None
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise invalid_argument(f"{CREDENTIAL_FILE}: '{path}' can't be read: {error.strerror}") from error
    except ValueError as error:
        # The error's own text would quote the file.
        raise invalid_argument(f"{CREDENTIAL_FILE}: '{path}' is no JSON") from error
    by_prefix = content.get(address.scheme, {}) if isinstance(content, dict) else None
    if not isinstance(by_prefix, dict):
        raise invalid_argument(f"{CREDENTIAL_FILE}: '{path}' must hold an object of objects: scheme, prefix, credentials")
    fitting = [prefix for prefix in by_prefix if address.text.startswith(prefix)]
    return by_prefix[max(fitting, key=len)] if fitting else None


def _fields(given: Any, scheme: str, known: tuple[str, ...]) -> dict[str, str]:
    if not isinstance(given, dict) or any(not isinstance(value, str) for value in given.values()):
        raise invalid_argument(f"{CREDENTIAL_FILE}: the credentials of a prefix under '{scheme}' must be an object of texts")
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise invalid_argument(f"{CREDENTIAL_FILE}: '{scheme}' has {', '.join(unknown)}; known are {', '.join(known)}")
    return given


def _text(given: Any, scheme: str) -> str:
    if not isinstance(given, str) or not given:
        raise invalid_argument(f"{CREDENTIAL_FILE}: the value of a prefix under '{scheme}' must be the path of a file")
    return given
