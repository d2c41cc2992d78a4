"""A tiny ASGI caller: one request in, one response out, on a loop of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote


@dataclass
class Reply:
    """What an app answered. `received` is how many body messages it asked for."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    received: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.json) == ["error"]
        return self.json["error"]


def call(
    app: Any,
    method: str,
    target: str,
    body: bytes | Iterable[bytes] | None = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    """Call `app`. `body` in several pieces has no Content-Length; None is a client that leaves before it has sent a body."""
    return asyncio.run(call_async(app, method, target, body, headers))


async def call_async(
    app: Any,
    method: str,
    target: str,
    body: bytes | Iterable[bytes] | None = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    reply = Reply()
    fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    if isinstance(body, bytes) and body and "content-length" not in dict(headers or {}):
        fields.append((b"content-length", b"%d" % len(body)))
    messages = _messages(body)

    async def receive() -> dict[str, Any]:
        reply.received += 1
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert reply.status == 0, "a second response"
            reply.status = message["status"]
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", [])]
            assert len(dict(pairs)) == len(pairs), f"a header is there twice: {pairs}"
            reply.headers = dict(pairs)
        else:
            reply.body += message.get("body", b"")

    raw_path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "root_path": "",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": fields,
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
    }
    await app(scope, receive, send)
    return reply


def _messages(body: bytes | Iterable[bytes] | None) -> Any:
    if body is None:
        return
    pieces = [body] if isinstance(body, bytes) else body
    for piece in pieces:
        yield {"type": "http.request", "body": piece, "more_body": not isinstance(body, bytes)}
    if not isinstance(body, bytes):
        yield {"type": "http.request", "body": b"", "more_body": False}
