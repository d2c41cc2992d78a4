"""The responses to a valid stream of requests depend on its bytes only, not on the pieces that they come in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from fake_service import FakeService
from fake_transport import FakeTransport
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_http import chunked, infer, post

from naiad.frontends.http.app import create_app
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.http.options import HttpOptions
from naiad.request.call import InferCall
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BY_NAME

BINARY_HEAD = json.dumps(
    {"inputs": [{"name": "X", "shape": [4], "datatype": "UINT8", "parameters": {"binary_data_size": 4}}]}
).encode()
LARGE = 70_000
LARGE_HEAD = BINARY_HEAD.replace(b"[4]", b"[70000]").replace(b": 4}", b": 70000}")
REQUESTS = [
    infer("echo", [1, 2]),
    b"GET /v2 HTTP/1.1\r\nHost: test\r\n\r\n",
    infer("echo", [1, 2]),
    post("/v2/models/echo/infer", BINARY_HEAD + b"\r\n\r\n", f"Inference-Header-Content-Length: {len(BINARY_HEAD)}"),
    chunked("/v2/models/echo/infer", b'{"inputs":[{"name":"X","shape":[1],', b'"datatype":"FP32","data":[3]}]}'),
    post("/v2/models/echo/infer", b"{"),
    b"HEAD /v2/health/live HTTP/1.1\r\n\r\n",
    post("/v2/repository/index", b'{"ready":true}'),
    post("/v2/models/echo/generate", b'{"S":"a"}'),
    post("/v2/models/echo/generate_stream", b'{"S":"a"}'),
    post("/nowhere", b"GET /v2 HTTP/1.1\r\n\r\n"),
    post("/v2/models/echo/infer", b"", "Connection: close"),
]
STREAM = b"".join(REQUESTS)
SHORT_STREAM = b"".join(REQUESTS[index] for index in (0, 1, 3, 4, -1))
LARGE_STREAM = post("/v2/models/echo/infer", LARGE_HEAD + b"x" * LARGE, f"Inference-Header-Content-Length: {len(LARGE_HEAD)}")
LARGE_STREAM += infer("echo", [5]) + REQUESTS[-1]


class EchoService(FakeService):
    """Answers each inference at once with its first input."""

    def infer(self, call: InferCall, sink: ResponseSink):
        outputs = []
        for item in call.inputs:
            data = item.array if item.array is not None else memoryview(item.buffer)
            outputs.append(OutputTensor("Y", BY_NAME[item.datatype], np.asarray(data)))
        sink.send(InferResponse("echo", "1", call.id, {}, outputs), True)
        return self

    def cancel(self) -> None:
        return


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def make_site(loop) -> HttpSite:
    service = EchoService()
    return HttpSite(service, HttpOptions(), create_app(service, HttpOptions()), loop)


def respond(loop, site: HttpSite, pieces: list[bytes]) -> bytes:
    """Return everything that a new connection sends when it gets these pieces."""

    async def run() -> bytes:
        connection = HttpConnection(site)
        transport = FakeTransport(connection)
        for piece in pieces:
            transport.feed(piece)
            await asyncio.sleep(0)
        for _ in range(1000):
            if transport.is_closed:
                break
            await asyncio.sleep(0)
        assert transport.is_closed, "the last request asks for the end"
        connection.connection_lost(None)
        return transport.written

    return loop.run_until_complete(run())


@pytest.fixture(scope="module")
def site(loop) -> Iterator[HttpSite]:
    made = make_site(loop)
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(loop, site) -> bytes:
    """What each request gets when it comes alone and whole, joined."""
    parts = []
    for request in REQUESTS:
        last = request if b"Connection: close" in request else request + REQUESTS[-1]
        answer = respond(loop, site, [last])
        parts.append(answer if last is request else answer[: -len(respond(loop, site, [REQUESTS[-1]]))])
    return b"".join(parts)


def test_the_stream_has_one_response_for_each_request(loop, site, expected):
    assert expected.count(b"HTTP/1.1 ") == len(REQUESTS)
    assert respond(loop, site, [STREAM]) == expected


def test_a_split_at_any_byte_changes_nothing(loop, site):
    whole = respond(loop, site, [SHORT_STREAM])
    assert whole.count(b"HTTP/1.1 ") == 5
    for position in range(1, len(SHORT_STREAM)):
        assert respond(loop, site, [SHORT_STREAM[:position], SHORT_STREAM[position:]]) == whole, position


def test_every_byte_by_itself_changes_nothing(loop, site, expected):
    assert respond(loop, site, [STREAM[i : i + 1] for i in range(len(STREAM))]) == expected


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cuts_change_nothing(loop, site, expected, cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert respond(loop, site, [STREAM[a:b] for a, b in pairwise(edges) if a < b]) == expected


def test_heads_that_are_known_change_nothing(loop, expected):
    """A site that has never seen these heads and one that has seen them all, whole requests and parts."""
    fresh = make_site(loop)
    try:
        for _ in range(3):
            assert respond(loop, fresh, REQUESTS) == expected
    finally:
        fresh.close()


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, len(LARGE_STREAM)), max_size=6))
def test_cuts_of_a_body_that_is_received_into_its_place_change_nothing(loop, site, cuts):
    edges = [0, *sorted(cuts), len(LARGE_STREAM)]
    pieces = [LARGE_STREAM[a:b] for a, b in pairwise(edges) if a < b]
    assert respond(loop, site, pieces) == respond(loop, site, [LARGE_STREAM])
