"""The model repository extension: index, load, unload.

Owns how their bodies are read. What may be loaded, and when, is the service's.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from typing import Any

from starlette.responses import Response

from naiad.errors import invalid_argument, unimplemented
from naiad.frontends.http.admin.body import empty_answer, json_answer, read_object, type_name
from naiad.frontends.http.admin.endpoint import Question
from naiad.frontends.printable import printable
from naiad.request.service import IndexEntry

_FILE_PREFIX = "file:"
# The files of a model may take long to decode.
_LARGE_BYTES = 64 << 10


async def index(question: Question) -> Response:
    """Every known model version and its state; a name of a repository in the path changes nothing."""
    is_ready_only = _flag(read_object(question.body, is_optional=True), "ready")
    return json_answer([_entry(entry) for entry in await question.service.repository_index(is_ready_only)])


async def load(question: Question) -> Response:
    """Load or reload; answers when the model is ready."""
    _refuse_repository(question)
    if len(question.body) > _LARGE_BYTES:
        parameters = await asyncio.to_thread(_load_parameters, question.body)
    else:
        parameters = _load_parameters(question.body)
    await question.service.load_model(question.model, parameters)
    return empty_answer()


async def unload(question: Question) -> Response:
    """Begin to unload; what is in flight ends first."""
    _refuse_repository(question)
    is_unload_dependents = _flag(_parameters(question.body), "unload_dependents")
    await question.service.unload_model(question.model, is_unload_dependents)
    return empty_answer()


def _entry(entry: IndexEntry) -> dict[str, str]:
    members = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
    return {key: printable(value) for key, value in members.items() if value}


def _refuse_repository(question: Question) -> None:
    if question.repository:
        raise unimplemented(f"a repository name ('{question.repository}') isn't supported, leave it out of the path")


def _parameters(body: bytes) -> dict[str, Any]:
    value = read_object(body, is_optional=True).get("parameters", {})
    if not isinstance(value, dict):
        raise invalid_argument(f"'parameters' must be an object, got {type_name(value)}")
    return value


def _flag(members: dict[str, Any], name: str) -> bool:
    value = members.get(name, False)
    if not isinstance(value, bool):
        raise invalid_argument(f"'{name}' must be true or false, got {type_name(value)}")
    return value


def _load_parameters(body: bytes) -> dict[str, str | bytes]:
    return {key: _load_parameter(key, value) for key, value in _parameters(body).items()}


def _load_parameter(key: str, value: Any) -> str | bytes:
    """Return `config` as text and the content of a `file:<version>/<path>` as bytes: JSON carries it in base64."""
    if key != "config" and not key.startswith(_FILE_PREFIX):
        raise invalid_argument(f"unknown load parameter '{key}', allowed are 'config' and 'file:<version>/<path>'")
    if not isinstance(value, str):
        raise invalid_argument(f"load parameter '{key}' must be a string, got {type_name(value)}")
    if key == "config":
        return value
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_argument(f"load parameter '{key}' isn't valid base64: {error}") from error
