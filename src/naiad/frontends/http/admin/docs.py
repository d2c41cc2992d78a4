"""The documentation page at `/docs` and the OpenAPI document at `/openapi.json`.

Owns both endpoints and the page's security policy: it runs its own script and style only, and talks to this server only. The
page itself shows nothing that isn't asked for through the API, so no restricted API has it; the document is
part of the metadata.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files

import orjson
from starlette.responses import Response

from naiad.frontends.access import AccessRules
from naiad.frontends.http.admin.endpoint import JSON, Answer, Endpoint, Operation, Question
from naiad.frontends.http.admin.openapi import document

_STATIC = files("naiad.frontends.http") / "static"


def endpoints(described: Sequence[Endpoint], access: AccessRules) -> tuple[Endpoint, ...]:
    """Return the endpoints of the page and of the document that describes `described`."""
    return (
        Endpoint("/docs", "docs", {"GET": Operation(_page_answer(), "This API as a page")}),
        Endpoint("/openapi.json", "metadata", {"GET": Operation(_document_answer(described, access), "This API")}),
    )


def _page_answer() -> Answer:
    style, script = _text("docs.css"), _text("docs.js")
    page = _text("docs.html").replace("/*style*/", style).replace("/*script*/", script).encode()
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

    async def answer(_question: Question) -> Response:
        return Response(page, headers=headers, media_type="text/html")

    return answer


def _document_answer(described: Sequence[Endpoint], access: AccessRules) -> Answer:
    schemas = orjson.loads(_text("schemas.json"))

    async def answer(question: Question) -> Response:
        version = question.service.server_metadata().version
        return Response(orjson.dumps(document(described, access, schemas, version)), media_type=JSON)

    return answer


def _text(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Return the source expression that allows exactly this inline text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
