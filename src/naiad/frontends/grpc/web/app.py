"""Which requests of the HTTP listener are calls of gRPC-Web.

Owns that choice and the call's head. Everything else is answered by the app behind it, as if this one weren't there.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from naiad.frontends.access import AccessRules
from naiad.frontends.grpc.call import Metadata
from naiad.frontends.grpc.site import GrpcSite
from naiad.frontends.grpc.web.call import WebCall
from naiad.frontends.grpc.web.framing import MediaTypes, media_types

# /package.Service/Method; no path of the HTTP API looks so.
_RPC = re.compile(rb"/\w+(?:\.\w+)+/\w+")
# These are HTTP's own: not a word of the client's to the RPC.
_HTTP_FIELDS = frozenset(
    {
        b"accept",
        b"connection",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"transfer-encoding",
    }
)


class GrpcWebApp:
    """See the module. Loop thread only. It needs `raw_path` and header names in lower case in the scope.

    What `http_access` restricts on this port, it restricts of RPCs too, besides gRPC's own rules.
    """

    def __init__(self, site: GrpcSite, http_access: AccessRules, otherwise: ASGIApp) -> None:
        self._site = site
        self._http_access = http_access
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        types = _types(scope)
        if types is None:
            await self._otherwise(scope, receive, send)
            return
        metadata = _metadata(scope["raw_path"], scope["headers"])
        call = WebCall(self._site, self._http_access, self._site.head(metadata), metadata, types)
        await call.serve(receive, send)


def _types(scope: Scope) -> MediaTypes | None:
    """Return what a call of gRPC-Web is made of, None for any other request."""
    if scope["method"] != "POST" or not _RPC.fullmatch(scope["raw_path"]):
        return None
    fields = dict(scope["headers"])
    return media_types(fields.get(b"content-type", b""), fields.get(b"accept", b""))


def _metadata(path: bytes, headers: Metadata) -> tuple[tuple[bytes, bytes], ...]:
    """Return the fields of a request as gRPC over HTTP/2 has them."""
    own = ((b":method", b"POST"), (b":path", path), (b"content-type", b"application/grpc"))
    return (*own, *((name, value) for name, value in headers if name not in _HTTP_FIELDS))
