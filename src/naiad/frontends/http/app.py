"""The app for everything that isn't hot: one table of endpoints, built on Starlette's responses.

Owns the way of such a request: path, access, method, body, answer, and errors as JSON. Inference and generate requests never
get here, the connection answers them; CORS is the connection's too. Starlette's own router isn't used: it decodes a path before
it matches, so an encoded slash or dot would lead elsewhere.
"""

from __future__ import annotations

import logging

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from naiad.errors import InferenceServerError
from naiad.frontends.access import AccessRules
from naiad.frontends.http.admin import docs, table
from naiad.frontends.http.admin.body import error_answer, read_body, refused_answer
from naiad.frontends.http.admin.endpoint import Question
from naiad.frontends.http.admin.paths import Names, Router, decode_name, decode_version
from naiad.frontends.http.options import HttpOptions
from naiad.frontends.http.status import STATUS_OF_CODE
from naiad.request.service import InferenceService

_log = logging.getLogger("naiad.http")


def create_app(service: InferenceService, options: HttpOptions) -> ASGIApp:
    """Return the ASGI app of one listener. It needs `raw_path` and header names in lower case in the scope."""
    access = AccessRules(options.restricted, api_keys=options.api_keys)
    described = table.endpoints()
    router = Router((*described, *docs.endpoints(described, access)))
    return _App(service, router, access, options.max_input_size_bytes)


class _App:
    """See the module. Loop thread only."""

    def __init__(self, service: InferenceService, router: Router, access: AccessRules, max_body_bytes: int) -> None:
        self._service = service
        self._router = router
        self._access = access
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except ClientDisconnect:
            return  # nobody is there to read an answer
        except InferenceServerError as error:
            response = error_answer(STATUS_OF_CODE[error.code], error.message)
        except Exception:
            _log.exception("a request failed by a fault of the server")
            response = error_answer(500, "internal error, see the server's log")
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        found = self._router.find(scope["raw_path"])
        headers, method = scope["headers"], scope["method"]
        refusal = self._access.check("" if found is None else found[0].api, headers)
        if refusal is not None:
            return refused_answer(refusal)
        if found is None:
            return error_answer(404, "Not Found")
        endpoint, names = found
        operation = endpoint.operation(method)
        if operation is None:
            return error_answer(405, "Method Not Allowed", {"Allow": endpoint.allow()})
        body = await read_body(headers, receive, self._max_body_bytes) if method == "POST" else b""
        return await operation.answer(self._question(names, body))

    def _question(self, names: Names, body: bytes) -> Question:
        model = decode_name("model", names.get("model", b""))
        return Question(
            self._service,
            model,
            decode_version(model, names.get("version", b"")),
            decode_name("repository", names.get("repository", b"")),
            body,
            decode_name("shared memory region", names.get("region", b"")),
        )
