"""Slow and idle clients: each is given up after its time-out, with an answer where it can still read one."""

from __future__ import annotations

import json
import time

import pytest
from http_models import write_identity
from raw_http import Connection, infer, post

HEADER_S, BODY_S, IDLE_S = 0.3, 0.4, 0.5


@pytest.fixture(scope="module")
def hasty(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("hasty")
    write_identity(repository, "echo")
    return serve_for_module(
        repository,
        f"--http-header-timeout-secs={HEADER_S}",
        f"--http-body-timeout-secs={BODY_S}",
        f"--http-keep-alive-timeout-secs={IDLE_S}",
        "--http-max-connections=8",
    )


@pytest.fixture
def open_one(hasty, connect):
    """Open connections; the time-out of the last test's may still be running, but none of them counts any more."""
    return lambda: connect(hasty)


@pytest.mark.parametrize(
    ("sent", "limit_s", "flag"),
    [
        (b"POST /v2/mod", HEADER_S, "--http-header-timeout-secs"),
        (b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\n", HEADER_S, "--http-header-timeout-secs"),
        (post("/v2/models/echo/infer", b"{}" * 50)[:-50], BODY_S, "--http-body-timeout-secs"),
        (post("/v2/models/echo/generate", b"{}" * 50)[:-50], BODY_S, "--http-body-timeout-secs"),
        (post("/v2/repository/index", b"{}" * 50)[:-50], BODY_S, "--http-body-timeout-secs"),
        (b"POST /v2/logging HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", BODY_S, "--http-body-timeout-secs"),
        (post("/v2/models/echo/infer", b"x" * 200_000)[:-50], BODY_S, "--http-body-timeout-secs"),
    ],
    ids=["target", "head", "infer-body", "generate-body", "app-body", "chunk", "large-body"],
)
def test_what_stops_in_the_middle_is_given_up_with_a_408_that_names_the_flag(open_one, sent, limit_s, flag):
    began = time.monotonic()
    connection = open_one().send(sent)
    status, headers, body = connection.response()
    assert (status, headers["connection"]) == (408, "close")
    assert flag in json.loads(body)["error"]
    assert limit_s <= time.monotonic() - began < 5
    assert connection.is_at_end()


def test_bytes_one_by_one_do_not_prolong_a_head(open_one):
    connection = open_one().send(b"GET /")
    began = time.monotonic()
    connection.socket.settimeout(0.02)
    while True:
        try:
            connection.send(b"x")
            connection.exactly(1)
            break
        except TimeoutError:
            assert time.monotonic() - began < 5
        except ConnectionError:
            break  # It was closed while a byte was on its way.
    assert time.monotonic() - began >= HEADER_S


def test_an_idle_connection_is_closed_without_a_word(open_one):
    connection = open_one()
    assert connection.send(infer("echo", [1])).response()[0] == 200
    began = time.monotonic()
    assert connection.is_at_end()
    assert IDLE_S - 0.1 <= time.monotonic() - began < 5


def test_a_connection_beyond_the_limit_is_told_so(hasty):
    connections = [Connection(hasty.host_port) for _ in range(8)]
    answered = [connection.send(infer("echo", [1])).response()[0] for connection in connections]
    assert set(answered) <= {200, 503}
    extra = Connection(hasty.host_port)
    status, headers, body = extra.response()
    for connection in [*connections, extra]:
        connection.close()
    assert (status, headers["connection"]) == (503, "close")
    assert "--http-max-connections" in json.loads(body)["error"]
