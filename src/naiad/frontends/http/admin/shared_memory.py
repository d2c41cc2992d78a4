"""The shared memory extensions: status, register, unregister, of system memory and of GPUs'.

Owns how their bodies are read and answers written. Which memory may be registered is the service's.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from starlette.responses import Response

from naiad.errors import invalid_argument
from naiad.frontends.http.admin.body import empty_answer, json_answer, read_object, type_name
from naiad.frontends.http.admin.endpoint import Question

_UINT64_MAX = 2**64 - 1


async def system_status(question: Question) -> Response:
    """The region of the path, or all."""
    regions = question.service.system_regions(question.region)
    members = [{"name": at.name, "key": at.key, "offset": at.offset, "byte_size": at.byte_size} for at in regions]
    return json_answer(members)


async def register_system(question: Question) -> Response:
    """Register a piece of a POSIX shared memory object."""
    question.service.check_regions_allowed()
    members = read_object(question.body)
    key = _text(members, "key")
    offset = _unsigned(members, "offset") if "offset" in members else 0
    question.service.register_system_region(question.region, key, offset, _unsigned(members, "byte_size"))
    return empty_answer()


async def unregister_system(question: Question) -> Response:
    """Unregister the region of the path, or all."""
    question.service.unregister_system_region(question.region)
    return empty_answer()


async def cuda_status(question: Question) -> Response:
    """The region of the path, or all."""
    regions = question.service.cuda_regions(question.region)
    return json_answer([{"name": at.name, "device_id": at.device_id, "byte_size": at.byte_size} for at in regions])


async def register_cuda(question: Question) -> Response:
    """Register memory of a GPU."""
    question.service.check_regions_allowed()
    members = read_object(question.body)
    handle = _member(members, "raw_handle")
    if not isinstance(handle, dict):
        raise invalid_argument(f"'raw_handle' must be an object, got {type_name(handle)}")
    device_id, byte_size = _unsigned(members, "device_id"), _unsigned(members, "byte_size")
    await question.service.register_cuda_region(question.region, _base64(handle), device_id, byte_size)
    return empty_answer()


async def unregister_cuda(question: Question) -> Response:
    """Unregister the region of the path, or all."""
    question.service.unregister_cuda_region(question.region)
    return empty_answer()


def _member(members: dict[str, Any], name: str) -> Any:
    if name not in members:
        raise invalid_argument(f"the request has no member '{name}'")
    return members[name]


def _text(members: dict[str, Any], name: str) -> str:
    value = _member(members, name)
    if not isinstance(value, str):
        raise invalid_argument(f"'{name}' must be a string, got {type_name(value)}")
    return value


def _unsigned(members: dict[str, Any], name: str) -> int:
    value = _member(members, name)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        got = value if type(value) in (int, float) else type_name(value)
        raise invalid_argument(f"'{name}' must be an integer from 0 to {_UINT64_MAX}, got {got}")
    return value


def _base64(handle: dict[str, Any]) -> bytes:
    try:
        return b64decode(_text(handle, "b64"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_argument(f"'b64' of 'raw_handle' isn't valid base64: {error}") from error
