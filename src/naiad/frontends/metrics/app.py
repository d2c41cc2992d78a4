"""The ASGI application of the metrics listener.

Owns its two answers. Doesn't own what a scrape says (`observability.metrics`) nor the socket.
"""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from naiad.frontends.access import AccessRules
from naiad.frontends.api_keys import ApiKeys
from naiad.observability.metrics import MetricsRegistry
from naiad.observability.prometheus_text import CONTENT_TYPE


def create_app(registry: MetricsRegistry, api_keys: ApiKeys | None = None) -> ASGIApp:
    """Return the application: `GET /metrics` is the scrape.

    As Triton's does, it answers GET of any other path with 200 and nothing, and every other method (HEAD too) with 405. With
    `api_keys` it belongs to the group "metrics".
    """
    access = AccessRules((), api_keys=api_keys)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = access.check("metrics", scope["headers"])
        if refusal is None:
            response = await _answer(registry, scope["method"], scope["path"])
        else:
            response = PlainTextResponse(refusal.text, 401, {"WWW-Authenticate": refusal.challenge})
        await response(scope, receive, send)

    return app


async def _answer(registry: MetricsRegistry, method: str, path: str) -> Response:
    if method != "GET":
        return PlainTextResponse("only GET is answered here", 405, {"Allow": "GET"})
    if path != "/metrics":
        return Response()
    return Response(await registry.render(), headers={"Content-Type": CONTENT_TYPE})
