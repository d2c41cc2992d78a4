"""What an endpoint is: a path, the restricted API that it belongs to, and one operation for each method.

Owns these values. Routing, access rules, `Allow` headers and the OpenAPI document are all made from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from naiad.request.service import InferenceService

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Question:
    """One request as its endpoint sees it: the names in its path, decoded, and its whole body.

    `version` is "" for the latest. Names that the path doesn't have are "". `body` is empty for GET.
    """

    service: InferenceService
    model: str = ""
    version: str = ""
    repository: str = ""
    body: bytes = b""
    region: str = ""


Answer = Callable[[Question], Awaitable[Response]]
"""Answers a question on the loop thread. May raise InferenceServerError, which becomes the status of its code."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a body holds: the name of its schema, its media types, and whether a request may leave it out."""

    schema: str
    media_types: tuple[str, ...] = (JSON,)
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of an endpoint does. `response` None is an empty body. One that `is_unbuilt` answers 501."""

    answer: Answer
    summary: str
    response: Content | None = None
    request: Content | None = None
    is_unbuilt: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the route table.

    `path` is a template: `{model}` stands for a name without "/", `{version}` for digits, and what is in brackets may be left
    out. `api` is the group that `--http-restricted-api` knows it by, "" when it can't be restricted.
    """

    path: str
    api: str
    operations: Mapping[str, Operation]

    def operation(self, method: str) -> Operation | None:
        """Return what `method` does here; HEAD is a GET whose body the connection leaves out."""
        return self.operations.get("GET" if method == "HEAD" else method)

    def allow(self) -> str:
        """Return the value of the `Allow` header."""
        methods = set(self.operations)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))
