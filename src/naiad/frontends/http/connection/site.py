"""What all connections of one listener share, and how a request's head becomes an exchange.

Owns access rules, CORS and header forwarding as connections apply them: in this one place, for hot and other routes alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from naiad.errors import InferenceServerError, invalid_argument
from naiad.frontends.access import AccessRules
from naiad.frontends.codec_thread import CodecThread
from naiad.frontends.header_forward import HeaderForwarder
from naiad.frontends.http.connection.body import Body
from naiad.frontends.http.connection.exchange import Refusal, Transmitter
from naiad.frontends.http.connection.generate import GenerateExchange
from naiad.frontends.http.connection.hot import (
    Head,
    Headers,
    HotContext,
    HotExchange,
    OpenedHead,
    RefusedExchange,
    check_size,
    has_droppable_body,
    make_body,
    read_head,
)
from naiad.frontends.http.connection.infer import InferExchange
from naiad.frontends.http.connection.known_requests import KnownAnswers, KnownHeads
from naiad.frontends.http.connection.routes import HotKind, HotRoute, HotRoutes
from naiad.frontends.http.cors import CorsPolicy
from naiad.frontends.http.json_helper.process import JsonHelper
from naiad.frontends.http.options import HttpOptions
from naiad.frontends.http.status import STATUS_OF_CODE
from naiad.request.service import InferenceService
from naiad.wire.call_templates import CallTemplates
from naiad.wire.kserve_response import ResponseTemplates
from naiad.wire.limits import RequestLimits

_INFERENCE = "inference"
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head. `headers` have names in lower case; `spelled` have them as the client wrote them, and are kept only
    when headers are forwarded. `extra` are the header lines of every response.
    """

    headers: Headers
    spelled: Headers
    extra: bytes
    keep_alive: bool


class HttpSite:
    """See the module. `app` answers what isn't hot; `has_hot_routes` is False for the metrics listener."""

    def __init__(
        self,
        service: InferenceService,
        options: HttpOptions,
        app: Any,
        loop: asyncio.AbstractEventLoop,
        has_hot_routes: bool = True,
    ) -> None:
        self.service = service
        self.options = options
        self.loop = loop
        self.config = Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
        self.config.load()
        self.state = ServerState()
        self.routes = HotRoutes(has_hot_routes)
        self.heads = KnownHeads()
        self.answers = KnownAnswers()
        service.on_change(self.answers.forget)
        self._hot = HotContext(
            service,
            RequestLimits(options.max_input_size_bytes),
            CallTemplates(),
            ResponseTemplates(),
            JsonHelper(loop),
            CodecThread(loop, "naiad-codec"),
            self.answers,
        )
        self._access = AccessRules(options.restricted, api_keys=options.api_keys)
        if options.api_keys is not None:
            options.api_keys.on_change(self._forget)
        self._client_of = options.client_of
        self._cors = CorsPolicy(options.cors_origins)
        self.forwards_headers = bool(options.header_forward_pattern)
        self._forwarder = HeaderForwarder(options.header_forward_pattern)

    def close(self) -> None:
        """End what the site started; its connections are gone."""
        self._hot.json_helper.close()
        self._hot.codec_thread.close()

    def _forget(self) -> None:
        """Forget what was decided for those who might ask then."""
        self.heads.forget()
        self.answers.forget()

    def cors_lines(self, headers: Headers) -> bytes:
        """Return the header lines that every response to this request carries; b"" when CORS is off."""
        return self._cors.headers_for(headers) if self._cors.is_enabled else b""

    def preflight(self, headers: Headers) -> bytes | None:
        """Return the header lines that answer a preflight request, or None when this isn't one or CORS is off."""
        return self._cors.preflight(headers) if self._cors.is_enabled else None

    def open(self, route: HotRoute, connection: Transmitter, request: RequestHead) -> OpenedHead | Refusal:
        """Return a hot request's head, read and allowed, or its refusal: a small body is dropped, a large one isn't read."""
        refusal = self._access.check(_INFERENCE, request.headers)
        extra = request.extra
        if refusal is None:
            try:
                return self._open(route, request)
            except InferenceServerError as error:
                status, text = STATUS_OF_CODE[error.code], error.message
        else:
            status, text = 403, refusal.text
            if refusal.challenge:
                status, extra = 401, b"%bWWW-Authenticate: %b\r\n" % (extra, refusal.challenge.encode())
        if not has_droppable_body(request.headers):
            return Refusal(connection, extra, status, text)
        head = Head(int(dict(request.headers).get(b"content-length", b"0")), None, "", "")
        return OpenedHead(route, head, extra, request.keep_alive, _NOTHING, (status, text))

    def scope(self, method: bytes, target: bytes, headers: Headers, http_version: str) -> Any:
        """Return the ASGI scope of a request without its addresses. Raises INVALID_ARGUMENT for a target that is no URL."""
        try:
            url = httptools.parse_url(target)
            raw_path: bytes = url.path or b"/"
            path = unquote(raw_path.decode("ascii"))
        except (httptools.HttpParserError, UnicodeDecodeError) as error:
            raise invalid_argument(f"the request target {target[:200]!r} is not a valid URL") from error
        return {
            "type": "http",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "http_version": http_version,
            "method": method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": headers,
            "state": {},
        }

    def exchange(self, opened: OpenedHead, connection: Transmitter) -> HotExchange:
        """Return the exchange of a request with this head; it has no body yet."""
        if opened.refusal is not None:
            return RefusedExchange(connection, self._hot, opened)
        if opened.route.kind is HotKind.INFER:
            return InferExchange(connection, self._hot, opened)
        return GenerateExchange(connection, self._hot, opened)

    def body(self, opened: OpenedHead) -> Body:
        """Return where the body of a request with this head goes."""
        return make_body(opened.head, self._hot.limits)

    def _open(self, route: HotRoute, request: RequestHead) -> OpenedHead:
        head = read_head(request.headers)
        is_infer = route.kind is HotKind.INFER
        check_size(head, self._hot.limits, not is_infer)
        forwarded = self._forwarder.parameters(request.spelled) if self.forwards_headers and is_infer else _NOTHING
        client = "" if self._client_of is None else self._client_of(request.headers)
        return OpenedHead(route, head, request.extra, request.keep_alive, forwarded, client=client)
