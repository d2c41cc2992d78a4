"""Rules of request bodies: limits before the work, JSON whatever the content type, clear errors."""

from __future__ import annotations

import gzip
from itertools import repeat

import asgi
import pytest
from fake_service import FakeService
from hypothesis import given
from hypothesis import strategies as st

from naiad.frontends.http.app import create_app
from naiad.frontends.http.options import HttpOptions

LIMIT = 1000
ROUTES = [
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/repository/index",
    "/v2/repository/models/echo/load",
    "/v2/repository/models/echo/unload",
    "/v2/systemsharedmemory/region/r/register",
]
BUILT = [route for route in ROUTES if "trace" not in route and "shared" not in route]


@pytest.fixture
def limited():
    app = create_app(FakeService(), HttpOptions(max_input_size_bytes=LIMIT))
    return lambda target, body, headers=None: asgi.call(app, "POST", target, body, headers)


def of_size(size: int) -> bytes:
    return b'{"x":"%b"}' % (b"a" * (size - len(b'{"x":""}')))


@pytest.mark.parametrize("route", BUILT)
@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_a_body_up_to_the_limit_is_read(limited, route, size):
    body = of_size(size)
    assert len(body) == size
    assert limited(route, body).status == 200
    assert limited(route, [body[:10], b"", body[10:]]).status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [LIMIT + 1, 3_000_000_000])
def test_an_announced_size_over_the_limit_is_refused_before_anything_is_read(limited, route, size):
    reply = limited(route, b"{}", {"content-length": str(size)})
    assert reply.status == 400
    assert reply.error == f"a body of {size} bytes exceeds the limit of 1000 bytes, raise it with --http-max-input-size"
    assert reply.received == 0


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_without_end_is_refused_at_the_limit(limited, route):
    reply = limited(route, repeat(b"[" * 100))
    assert reply.status == 400
    assert "1000 bytes, raise it with --http-max-input-size" in reply.error
    assert reply.received == 11


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/octet-stream",
        "multipart/form-data; boundary=x",
        ";;;",
    ],
)
def test_any_content_type_is_read_as_json(call, service, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    assert call("POST", "/v2/repository/index", b'{"ready":true}', headers).status == 200
    assert service.index_filters == [True]


def test_a_byte_order_mark_is_fine(call, service):
    assert call("POST", "/v2/repository/index", b'\xef\xbb\xbf{"ready":true}').status == 200
    assert service.index_filters == [True]


@pytest.mark.parametrize("route", BUILT)
@pytest.mark.parametrize("body", [b"{", b"x", b" ", b'{"a":1}}', b'{"a":NaN}', b"\xff\xfe", b"\x00", b"[" * 100_000])
def test_what_is_no_json_is_400(call, route, body):
    reply = call("POST", route, body)
    assert reply.status == 400
    assert reply.error.startswith("failed to parse the request JSON buffer: ")


@pytest.mark.parametrize("route", BUILT)
@pytest.mark.parametrize(("body", "kind"), [(b"[]", "an array"), (b"null", "null"), (b"1.5", "a number"), (b'"x"', "a string")])
def test_json_that_is_no_object_is_400_that_names_what_it_is(call, route, body, kind):
    reply = call("POST", route, body)
    assert (reply.status, reply.error) == (400, f"the request's JSON must be an object, got {kind}")


def test_a_compressed_body_is_400_that_says_what_to_do(call):
    reply = call("POST", "/v2/logging", gzip.compress(b"{}"), {"content-encoding": "GZIP"})
    assert (reply.status, reply.error) == (400, "Content-Encoding 'gzip' isn't supported here, send the body uncompressed")


def test_identity_is_no_compression(call):
    assert call("POST", "/v2/logging", b"{}", {"content-encoding": "identity"}).status == 200


def test_the_body_of_a_get_is_not_read(call):
    assert call("GET", "/v2", b"x" * 10, {"content-length": "99999999999"}).received == 0


def test_a_client_that_leaves_in_the_middle_of_its_body_gets_nothing_and_changes_nothing(call, service):
    assert call("POST", "/v2/repository/models/echo/load", None).status == 0
    assert service.loaded == []


@given(st.one_of(st.binary(max_size=60), st.text(alphabet='{}[]":,ready tru1.\\nul', max_size=40).map(str.encode)))
def test_no_body_is_a_fault_of_the_server(body):
    app = create_app(FakeService(), HttpOptions())
    for route in ROUTES:
        assert asgi.call(app, "POST", route, body).status in (200, 400, 501)
