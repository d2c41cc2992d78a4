"""CORS: which web pages may call the server from a browser.

Owns the header lines, as bytes that go into a response as they are. Off unless origins are configured. Credentials are never
allowed: the server knows no cookies, and its restricted APIs take a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Headers = Sequence[tuple[bytes, bytes]]

_ANY = "*"
# The latter are those of gRPC-Web.
_EXPOSE = (
    b"Access-Control-Expose-Headers: Inference-Header-Content-Length, Retry-After, grpc-status, grpc-message, "
    b"grpc-encoding, grpc-accept-encoding\r\n"
)
# Another answer for each origin: caches must not give one origin's to another. Stated without Origin too, for that reason.
_VARY = b"Vary: Origin\r\n"
_PREFLIGHT = b"Access-Control-Allow-Methods: GET, HEAD, POST\r\nAccess-Control-Max-Age: 600\r\n"
_HEADER_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,4096}")


class CorsPolicy:
    """See the module. Applied in one place, the connection, so that errors and streams have the headers too."""

    __slots__ = ("_allow_any", "_allow_lines", "is_enabled")

    def __init__(self, origins: Iterable[str]) -> None:
        allowed = tuple(origins)
        self.is_enabled = bool(allowed)
        self._allow_any = b"Access-Control-Allow-Origin: *\r\n" if _ANY in allowed else b""
        self._allow_lines = {
            origin.encode(): b"Access-Control-Allow-Origin: %b\r\n%b" % (origin.encode(), _VARY) for origin in allowed
        }

    def headers_for(self, headers: Headers) -> bytes:
        """Return the header lines of every response to a request with these headers (names in lower case), b"" when off."""
        if not self.is_enabled:
            return b""
        allow = self._allow(headers)
        return allow + _EXPOSE if allow else _VARY

    def preflight(self, headers: Headers) -> bytes | None:
        """Return the header lines that answer an OPTIONS request, or None when it isn't a browser's preflight or CORS is off.

        A page that isn't allowed gets an answer without permissions: the browser then refuses the call.
        """
        fields = dict(headers)
        if not self.is_enabled or b"origin" not in fields or b"access-control-request-method" not in fields:
            return None
        allow = self._allow(headers)
        if not allow:
            return _VARY
        wanted = fields.get(b"access-control-request-headers", b"").strip()
        if _HEADER_NAMES.fullmatch(wanted):
            return b"%b%bAccess-Control-Allow-Headers: %b\r\n" % (allow, _PREFLIGHT, wanted)
        return allow + _PREFLIGHT

    def _allow(self, headers: Headers) -> bytes:
        """Return the lines that allow the request's origin, b"" when it isn't allowed."""
        if self._allow_any:
            return self._allow_any
        origin = next((value for name, value in headers if name == b"origin"), b"")
        return self._allow_lines.get(origin, b"")
