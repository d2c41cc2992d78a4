"""Bodies of the app's requests and responses: bounded reading, JSON in, JSON out.

Owns their limits and the texts of what is wrong with them. A body is JSON whatever its Content-Type says, as curl's default
is a form.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from naiad.errors import invalid_argument
from naiad.frontends.api_keys import AccessRefusal
from naiad.frontends.http.admin.endpoint import JSON
from naiad.frontends.http.status import error_body

_TYPE_NAMES = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit_bytes: int) -> bytes:
    """Return the whole body.

    Raises INVALID_ARGUMENT for one that is compressed or larger than `limit_bytes`, before it is read where Content-Length
    tells, and ClientDisconnect when the client leaves in the middle.
    """
    fields = dict(headers)
    coding = fields.get(b"content-encoding", b"identity").strip().lower()
    if coding not in (b"identity", b""):
        raise invalid_argument(
            f"Content-Encoding '{coding.decode('latin-1')}' isn't supported here, send the body uncompressed"
        )
    announced = int(fields.get(b"content-length", b"0"))
    if announced > limit_bytes:
        raise _over_limit(f"of {announced} bytes", limit_bytes)
    body = bytearray()
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
        if len(body) > limit_bytes:
            raise _over_limit(f"of more than {limit_bytes} bytes", limit_bytes)
    return bytes(body)


def read_object(body: bytes, is_optional: bool = False) -> dict[str, Any]:
    """Return the JSON object in `body`; an empty body is an empty object where the body `is_optional`.

    Raises INVALID_ARGUMENT for what isn't JSON (a byte-order mark is fine) or isn't an object.
    """
    if is_optional and not body:
        return {}
    try:
        value = orjson.loads(body.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise invalid_argument(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(value, dict):
        raise invalid_argument(f"the request's JSON must be an object, got {type_name(value)}")
    return value


def type_name(value: Any) -> str:
    """Return what JSON calls the type of a value, with its article."""
    return _TYPE_NAMES.get(type(value), "an object")


def json_answer(value: Any) -> Response:
    """Return 200 with `value` as JSON, members in their order."""
    return Response(orjson.dumps(value), media_type=JSON)


def empty_answer(status: int = 200) -> Response:
    """Return a response without a body."""
    return Response(status_code=status, media_type="text/plain")


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as every endpoint words it: an object with the member `error`."""
    return Response(error_body(message), status, headers, JSON)


def refused_answer(refusal: AccessRefusal) -> Response:
    """Return the answer to a request that may not be answered: 401 with a challenge, or 403."""
    if refusal.challenge:
        return error_answer(401, refusal.text, {"WWW-Authenticate": refusal.challenge})
    return error_answer(403, refusal.text)


def _over_limit(size: str, limit_bytes: int) -> Exception:
    return invalid_argument(f"a body {size} exceeds the limit of {limit_bytes} bytes, raise it with --http-max-input-size")
