"""The table from error codes to HTTP statuses, and the body of an error."""

from __future__ import annotations

import orjson

from naiad.errors import Code
from naiad.frontends.printable import printable

STATUS_OF_CODE = {
    Code.UNKNOWN: 400,
    Code.INTERNAL: 500,
    Code.NOT_FOUND: 404,
    Code.INVALID_ARGUMENT: 400,
    Code.UNAVAILABLE: 503,
    Code.UNIMPLEMENTED: 501,
    Code.ALREADY_EXISTS: 400,
    Code.CANCELLED: 400,
    Code.DEADLINE_EXCEEDED: 503,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.PERMISSION_DENIED: 403,
    Code.UNAUTHENTICATED: 401,
}


def error_body(message: str) -> bytes:
    """Return the JSON body of an error; text that isn't valid Unicode is written with escapes."""
    return orjson.dumps({"error": printable(message)})
