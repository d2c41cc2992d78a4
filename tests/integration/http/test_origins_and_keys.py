"""Web pages of other origins (CORS) and restricted APIs, on every way a response is made: hot, app, stream, error."""

from __future__ import annotations

import json

import pytest
from http_models import write_everything
from raw_http import infer, post

ORIGIN = "Origin: https://app.example"
EXPOSED = "Inference-Header-Content-Length, Retry-After, grpc-status, grpc-message, grpc-encoding, grpc-accept-encoding"
ALLOWED = "https://app.example"
KEY = "api-key: s3cret"
WAYS = {
    "infer": (infer("echo", [1]), 200),
    "infer-400": (post("/v2/models/echo/infer", b"{"), 400),
    "infer-404": (infer("nobody", [1]), 404),
    "generate": (post("/v2/models/gen/generate", b'{"text_input":"a"}'), 200),
    "stream": (post("/v2/models/gen/generate_stream", b'{"text_input":"a"}'), 200),
    "stream-400": (post("/v2/models/gen/generate_stream", b"{}"), 400),
    "app": (b"GET /v2 HTTP/1.1\r\nHost: test\r\n\r\n", 200),
    "app-404": (b"GET /nowhere HTTP/1.1\r\nHost: test\r\n\r\n", 404),
    "app-405": (b"GET /v2/repository/index HTTP/1.1\r\nHost: test\r\n\r\n", 405),
    "app-400": (post("/v2/logging", b"{"), 400),
    "too-large": (b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\nContent-Length: 999999999\r\n\r\n", 400),
    "malformed": (b"GET /v2 HTTP/1.1\r\nHost: test\r\nBad Name: x\r\n\r\n", 400),
}


def with_lines(request: bytes, *lines: str) -> bytes:
    """Return the request with these lines first in its head."""
    first, _, rest = request.partition(b"\r\n")
    return b"\r\n".join([first, *(line.encode() for line in lines), rest])


def preflight(path: str, origin: str = ORIGIN) -> bytes:
    lines = [f"OPTIONS {path} HTTP/1.1", "Host: test", origin, "Access-Control-Request-Method: POST"]
    lines.append("Access-Control-Request-Headers: content-type,inference-header-content-length")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture(scope="module")
def allowing(tmp_path_factory, serve_for_module):
    """A server that allows one origin, and one key for inference and the index."""
    repository = write_everything(tmp_path_factory.mktemp("models"))
    return serve_for_module(
        repository,
        "--http-max-input-size=1048576",
        f"--http-cors-origin={ALLOWED}",
        "--http-restricted-api=inference,model-repository:api-key=s3cret",
    )


@pytest.mark.parametrize("way", WAYS)
def test_without_the_option_no_response_has_cors_headers(exchange, way):
    request, expected = WAYS[way]
    status, headers, _ = exchange(with_lines(request, ORIGIN))
    assert status == expected
    assert not [name for name in headers if name.startswith("access-control")]


def test_without_the_option_a_preflight_is_refused_and_allows_nothing(exchange):
    status, headers, _ = exchange(preflight("/v2/models/echo/infer"))
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("way", WAYS)
def test_every_response_to_an_allowed_origin_carries_the_headers(allowing, connect, way):
    request, expected = WAYS[way]
    status, headers, _ = connect(allowing).send(with_lines(request, ORIGIN, KEY)).response()
    assert status == expected
    assert headers["access-control-allow-origin"] == ALLOWED
    assert headers["access-control-expose-headers"] == EXPOSED
    assert headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lines", [(), ("Origin: https://evil.example",), ("Origin: null",)])
def test_other_origins_get_none(allowing, connect, way, lines):
    _, headers, _ = connect(allowing).send(with_lines(WAYS[way][0], KEY, *lines)).response()
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", ["/v2/models/echo/infer", "/v2/models/gen/generate_stream", "/v2/repository/index", "/v2"])
def test_a_preflight_needs_no_key_and_the_connection_goes_on(allowing, connect, path):
    connection = connect(allowing)
    for _ in range(2):
        head = connection.send(preflight(path)).until(b"\r\n\r\n").decode()
        first, *lines = head.split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert first == "HTTP/1.1 204 No Content"
        assert fields["access-control-allow-origin"] == ALLOWED
        assert fields["vary"] == "Origin"
        assert "POST" in fields["access-control-allow-methods"]
        assert fields["access-control-allow-headers"] == "content-type,inference-header-content-length"
    assert connection.send(with_lines(infer("echo", [1]), KEY)).response()[0] == 200


def test_a_preflight_of_another_origin_allows_nothing(allowing, connect):
    head = connect(allowing).send(preflight("/v2/models/echo/infer", "Origin: https://evil.example")).until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204")
    assert b"allow-" not in head.lower()


def test_a_refusal_for_its_key_carries_the_cors_headers_too(allowing, connect):
    status, headers, _ = connect(allowing).send(with_lines(infer("echo", [1]), ORIGIN)).response()
    assert (status, headers["access-control-allow-origin"]) == (403, ALLOWED)


# --- restricted APIs and the connection


@pytest.mark.parametrize(
    "request_of",
    [infer("echo", [1]), post("/v2/models/gen/generate", b'{"text_input":"a"}'), post("/v2/repository/index", b"{}")],
)
def test_a_connection_outlives_a_403_with_a_small_body(allowing, connect, request_of):
    connection = connect(allowing)
    for _ in range(3):
        status, headers, body = connection.send(request_of).response()
        assert (status, headers.get("connection")) == (403, None)
        assert "api-key" in json.loads(body)["error"]
        assert connection.send(with_lines(request_of, KEY)).response()[0] == 200


def test_refused_and_allowed_requests_may_be_pipelined(allowing, connect):
    refused, allowed = infer("echo", [1]), with_lines(infer("echo", [2]), KEY)
    connection = connect(allowing).send((refused + allowed) * 20)
    assert [connection.response()[0] for _ in range(40)] == [403, 200] * 20


@pytest.mark.parametrize("size", [100_000, 10 << 20])
def test_a_403_with_a_large_body_is_read_by_its_client_and_ends_the_connection(allowing, connect, size):
    connection = connect(allowing).send(post("/v2/models/echo/infer", b" " * size))
    status, headers, _ = connection.response()
    assert (status, headers["connection"]) == (403, "close")
    assert connection.is_at_end()


def test_a_403_in_place_of_100_ends_the_connection(allowing, connect):
    head = post("/v2/models/echo/infer", b"{}", "Expect: 100-continue")[:-2]
    connection = connect(allowing).send(head)
    status, headers, _ = connection.response()
    assert (status, headers["connection"]) == (403, "close")
    assert connection.is_at_end()


def test_any_origin_may_be_allowed_and_never_with_credentials(tmp_path, serve, connect):
    write_everything(tmp_path)
    server = serve(tmp_path, "--http-cors-origin=*", "--http-max-input-size=1048576")
    for request, expected in WAYS.values():
        status, headers, _ = connect(server).send(with_lines(request, "Origin: https://any.example")).response()
        assert (status, headers["access-control-allow-origin"]) == (expected, "*")
        assert "access-control-allow-credentials" not in headers
