"""Bad bodies and targets over raw sockets: a clear 4xx, no 500, no hang, and the same process answers the next request."""

from __future__ import annotations

import json
import time

import pytest
from http_routes import GOOD_BODIES, GOOD_STATUS, POSTS
from raw_http import chunked, infer, post

CONTENT_TYPES = [
    None,
    "application/json",
    "application/json; charset=utf-8",
    "application/x-www-form-urlencoded",
    "text/plain",
    "application/octet-stream",
    "multipart/form-data; boundary=x",
    ";;;",
    "\xff",
]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_the_content_type_never_decides_how_a_body_is_read(exchange, path, content_type):
    lines = () if content_type is None else (f"Content-Type: {content_type}",)
    assert exchange(post(path, GOOD_BODIES[path], *lines))[0] == GOOD_STATUS[path]
    assert exchange(chunked(path, GOOD_BODIES[path][:5], GOOD_BODIES[path][5:], lines=lines))[0] == GOOD_STATUS[path]


@pytest.mark.parametrize("path", POSTS)
def test_a_byte_order_mark_in_front_of_the_json_is_no_fault(exchange, path):
    assert exchange(post(path, b"\xef\xbb\xbf" + GOOD_BODIES[path]))[0] == GOOD_STATUS[path]


BROKEN_JSON = {
    "half": b'{"inputs": [',
    "no-json": b"hello",
    "not-utf8": b'{"a": "\xff\xfe"}',
    "not-utf8-key": b'{"\xc3\x28": 1}',
    "utf16": '{"a": 1}'.encode("utf-16"),
    "NUL": b"\0" * 10,
    "trailing": b"{} {}",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "null": b"null",
    "deep-arrays": b"[" * 100_000,
    "deep-objects": b'{"a":' * 100_000,
    "deep-value": b'{"parameters":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "huge-number": b'{"id": ' + b"9" * 5000 + b"}",
    "half-pair": b'{"id": "\\ud800"}',
    "comment": b'{"a": 1 /* x */}',
    "single-quotes": b"{'a': 1}",
}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("name", BROKEN_JSON)
def test_what_is_no_json_object_is_400_on_every_route(exchange, error, path, name):
    assert error(
        exchange(post(path, BROKEN_JSON[name])), 400, *([503] if name == "deep-value" and path.endswith("load") else [])
    )


@pytest.mark.parametrize("path", POSTS)
def test_a_connection_goes_on_after_a_bad_body(server, connect, path):
    connection = connect(server)
    for body in (b"{", GOOD_BODIES[path], b"[]", GOOD_BODIES[path]):
        status, headers, _ = connection.send(post(path, body)).response()
        assert status == (GOOD_STATUS[path] if body == GOOD_BODIES[path] else 400)
        assert headers.get("connection") != "close"


# --- inference


@pytest.mark.parametrize("count", [10_000])
@pytest.mark.parametrize("names", ["equal", "different"])
def test_ten_thousand_inputs_are_refused_at_once(exchange, error, count, names):
    item = {"shape": [1, 1], "datatype": "FP32", "data": [1]}
    inputs = [{"name": "X" if names == "equal" else f"X{index}", **item} for index in range(count)]
    began = time.monotonic()
    text = error(exchange(post("/v2/models/echo/infer", json.dumps({"inputs": inputs}).encode())))
    assert len(text) < 5000
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("count", [10_000])
def test_ten_thousand_outputs_are_no_hang(exchange, count):
    body = infer("echo", [1], outputs=[{"name": "Y"}] * count)
    status, _, answer = exchange(body)
    assert status == 200
    assert len(json.loads(answer)["outputs"]) == 1


@pytest.mark.parametrize("name", ["", "\0", "\ud83d\ude00" * 100, "x" * 100_000, "..", "a/b", "\u202e"], ids=repr)
def test_odd_names_of_inputs_and_outputs_are_refused_by_name(exchange, error, name):
    item = {"name": name, "shape": [1], "datatype": "FP32", "data": [1]}
    assert error(exchange(post("/v2/models/echo0/infer", json.dumps({"inputs": [item]}).encode())))
    assert "unexpected inference output" in error(exchange(infer("echo", [1], outputs=[{"name": name}])))


@pytest.mark.parametrize("lines", [("Inference-Header-Content-Length: 9",) * 2, ("Content-Encoding: gzip",) * 2])
def test_headers_that_may_be_there_once_are_refused_when_they_are_there_twice(exchange, error, lines):
    assert "2 times" in error(exchange(post("/v2/models/echo/infer", b"{}", *lines)))


# --- targets

ODD_TARGETS = [
    "/v2/../v2",
    "/v2/./health/live",
    "/v2/models/../health/live",
    "/v2/models/%2e%2e/health/live",
    "/v2/models/%2e%2e%2f%2e%2e%2fetc/config",
    "/v2%2fhealth%2flive",
    "/v2/health%2Flive",
    "/v2/models/a%2fb/infer",
    "/v2/models/%00/infer",
    "/v2/models/%ff/infer",
    "/v2/models/%zz/infer",
    "/v2/models/%/infer",
    "/v2/models/echo%0d%0aX:y/infer",
    "/v2/models/" + "x" * 20_000 + "/infer",
    "/v2/models/echo/versions/" + "9" * 20_000 + "/infer",
    "/v2/models/\xff/infer",
    "//v2/models/echo/infer",
    "/v2/models//infer",
    "*",
    "?",
    "x",
]


@pytest.mark.parametrize("target", ODD_TARGETS, ids=lambda target: repr(target)[:40])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_an_odd_target_leads_nowhere(exchange, error, method, target):
    head = f"{method} {target} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n{{}}".encode("latin-1")
    assert error(exchange(head), 400, 404, 405)


def test_a_target_with_a_nul_is_malformed(exchange, error):
    assert error(exchange(b"GET /v2\0 HTTP/1.1\r\nHost: test\r\n\r\n"))
