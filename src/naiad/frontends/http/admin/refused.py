"""Endpoints that the protocol knows and the app refuses, so that a client reads why.

Owns the texts.
"""

from __future__ import annotations

from starlette.responses import Response

from naiad.errors import unimplemented
from naiad.frontends.http.admin.endpoint import Question


async def trace(_question: Question) -> Response:
    """Trace settings."""
    raise unimplemented("the trace extension isn't built yet")


async def inference(_question: Question) -> Response:
    """Inference by a request target that the connection, which answers inferences itself, doesn't know as one."""
    raise unimplemented(
        "inference is answered by its plain path only: send /v2/models/<model>/… as the request target, not a whole URL"
    )
