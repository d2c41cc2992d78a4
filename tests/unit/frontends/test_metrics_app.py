"""The metrics listener's application: /metrics, other paths, other methods."""

import asyncio
from typing import Any

import pytest

from naiad.frontends.metrics.app import create_app
from naiad.observability.metrics import MetricsRegistry


def ask(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """Send one request to the application; return status, headers, body."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"x=1", "headers": []}
    asyncio.run(create_app(MetricsRegistry())(scope, receive, send))
    start, *rest = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, b"".join(message["body"] for message in rest)


def test_a_scrape_is_plain_text_with_its_length() -> None:
    status, headers, body = ask("GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert int(headers["content-length"]) == len(body)
    assert body.startswith(b"# HELP nv_inference_request_success ")
    assert body.endswith(b"\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/v2", "/METRICS", "/a\nb"])
def test_any_other_path_is_200_and_empty(path: str) -> None:
    status, headers, body = ask("GET", path)
    assert (status, body, headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/metrics", "/other"])
def test_any_other_method_is_405_and_says_what_is_allowed(method: str, path: str) -> None:
    status, headers, _ = ask(method, path)
    assert (status, headers["allow"]) == (405, "GET")
