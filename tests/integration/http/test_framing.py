"""Bad framing over raw sockets: chunks, heads, lengths. The cost goes by bytes and not by pieces; what is wrong is a 4xx."""

from __future__ import annotations

import json
import time

import psutil
import pytest
from http_routes import POSTS
from raw_http import Connection, chunked, infer, post

HEAD = "POST /v2/models/echo0/infer HTTP/1.1\r\nHost: test\r\n"
LIMIT_BYTES = 1 << 20
BODY = b'{"inputs":[{"name":"X","shape":[2],"datatype":"FP32","data":[1,2]}]}'


def long_body(size: int) -> bytes:
    """Return a good body of `size` bytes for echo_bytes."""
    frame = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"BYTES","data":["%b"]}]}'
    return frame % (b"x" * (size - len(frame) + 2))


# --- chunks


def test_a_body_of_as_many_chunks_as_are_allowed_is_taken(exchange):
    body = long_body(65_536)
    began = time.monotonic()
    status, _, answer = exchange(chunked("/v2/models/echo_bytes/infer", *(body[i : i + 1] for i in range(len(body)))))
    assert status == 200
    assert len(json.loads(answer)["outputs"][0]["data"][0]) > 65_000
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("path", [*POSTS, "/v2/models/echo_bytes/infer"])
def test_seventy_thousand_chunks_of_one_byte_are_refused(server, exchange, error, path):
    began = time.monotonic()
    data = chunked(path, *([b" "] * 70_000))
    assert error(exchange(data)) == "the body has too many chunks: at most 65536 are allowed"
    assert time.monotonic() - began < 2


def test_millions_of_tiny_chunks_cost_no_memory(server, connect):
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    connection = connect(server).send((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
    try:
        for _ in range(20):
            connection.send(b"1\r\nx\r\n" * 100_000)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused at the limit, and no longer read
    assert process.memory_info().rss - before < 10 << 20


@pytest.mark.parametrize("path", ["/nowhere", "/v2"])
def test_many_chunks_to_a_path_that_reads_no_body_are_no_fault(exchange, path):
    assert exchange(chunked(path, *([b"x"] * 70_000)))[0] in (400, 404, 405)


@pytest.mark.parametrize("size", ["", "-1", "0x1", "g", "FFFFFFFFFFFFFFFFF", " 1", "1 1", "+1", "1\0"])
@pytest.mark.parametrize("path", ["/v2/models/echo0/infer", "/v2/repository/index"])
def test_a_chunk_size_that_is_no_size_is_refused(exchange, error, path, size):
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nx\r\n0\r\n\r\n"
    assert error(exchange(head.encode()), 400, 413)


@pytest.mark.parametrize("path", ["/v2/models/echo0/infer", "/v2/models/gen/generate", "/v2/repository/index"])
def test_the_largest_chunk_there_is_is_stopped_at_the_limit(exchange, error, path):
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n".encode()
    assert "--http-max-input-size" in error(exchange(head + b" " * (LIMIT_BYTES + 1)), 400, 413)


def test_a_chunk_size_may_have_leading_zeros(exchange):
    data = (HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode() + b"%016x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    assert exchange(data)[0] == 200


@pytest.mark.parametrize("path", ["/v2/models/echo_bytes/infer", "/v2/repository/index"])
def test_chunk_extensions_are_skipped_and_cost_no_memory(server, exchange, path):
    before = psutil.Process(server.pid).memory_info().rss
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert exchange(head + b"1;x=%b\r\n \r\n" % (b"e" * 1024) * 5000 + b"2\r\n{}\r\n0\r\n\r\n")[0] in (200, 400)
    assert psutil.Process(server.pid).memory_info().rss - before < 10 << 20


@pytest.mark.parametrize("path", ["/v2/models/echo0/infer", "/v2/repository/index"])
def test_trailers_are_skipped_up_to_a_limit(exchange, error, path):
    body = BODY if path.endswith("infer") else b"{}"
    assert exchange(chunked(path, body, end=b"0\r\nX-Sum: 1\r\nX-Other: a\r\n\r\n"))[0] == 200
    assert error(exchange(chunked(path, body, end=b"0\r\nContent-Length: 5\r\n\r\n")))
    many = b"0\r\n" + b"".join(b"t%d: x\r\n" % index for index in range(10_000)) + b"\r\n"
    status, _, answer = exchange(chunked(path, body, end=many))
    assert status in (200, 400, 431), answer


# --- heads


def test_a_head_with_ten_thousand_lines_is_431(exchange, error):
    lines = "".join(f"h{index}: x\r\n" for index in range(10_000))
    assert error(exchange((HEAD + lines + "\r\n").encode()), 431)


def test_a_head_with_a_few_lines_too_many_is_431_and_one_at_the_limit_is_taken(exchange, error):
    for count, expected in ((254, 200), (255, 431)):
        lines = tuple(f"h{index}: x" for index in range(count))
        assert exchange(post("/v2/models/echo0/infer", BODY, *lines))[0] == expected


@pytest.mark.parametrize("kind", ["header", "name", "target"])
def test_a_head_of_ten_megabytes_is_431(server, connect, error, kind):
    long = b"x" * (10 << 20)
    data = {
        "header": HEAD.encode() + b"X-Long: " + long,
        "name": HEAD.encode() + long,
        "target": b"GET /" + long,
    }[kind]
    assert error(connect(server).send(data).response(), 431)


MALFORMED = {
    "lengths-twice": HEAD + "Content-Length: 5\r\n" * 100 + "\r\nhello",
    "lengths-differ": HEAD + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length-list": HEAD + "Content-Length: 5, 5\r\n\r\nhello",
    "length-negative": HEAD + "Content-Length: -1\r\n\r\n",
    "length-hex": HEAD + "Content-Length: 0x5\r\n\r\nhello",
    "length-text": HEAD + "Content-Length: five\r\n\r\nhello",
    "length-empty": HEAD + "Content-Length:\r\n\r\n",
    "length-float": HEAD + "Content-Length: 5.0\r\n\r\nhello",
    "length-beyond-64-bits": HEAD + "Content-Length: 99999999999999999999\r\n\r\n",
    "length-and-chunks": HEAD + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked-twice": HEAD + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked-not-last": HEAD + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "space-in-name": HEAD + "Bad Name: x\r\n\r\n",
    "space-before-colon": HEAD + "Content-Length : 5\r\n\r\nhello",
    "no-colon": HEAD + "Nothing\r\n\r\n",
    "folded": HEAD + "X: a\r\n b\r\n\r\n",
    "NUL-in-value": HEAD + "X: a\0b\r\n\r\n",
    "NUL-in-name": HEAD + "X\0: a\r\n\r\n",
    "CR-in-value": HEAD + "X: a\rb\r\n\r\n",
    "odd-version": "GET /v2 HTTP/9.9\r\nHost: test\r\n\r\n",
    "no-http": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2-preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown-method": "FETCH /v2 HTTP/1.1\r\nHost: test\r\n\r\n",
    "lower-case-method": "get /v2 HTTP/1.1\r\nHost: test\r\n\r\n",
    "empty-name": HEAD + ": x\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_head_is_400_and_the_connection_ends(server, connect, error, name):
    connection = connect(server).send(MALFORMED[name].encode("latin-1"))
    answer = connection.response()
    assert error(answer)
    assert answer[1]["connection"] == "close"
    assert connection.is_at_end()


@pytest.mark.parametrize("name", ["bare-LF", "LF-and-CR"])
def test_bare_line_feeds_are_refused_or_read_as_line_ends(exchange, name):
    text = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n"
    text = text.replace("\r\n", "\n") if name == "bare-LF" else text.replace("\r\n", "\n\r")
    assert exchange(text.encode() + BODY)[0] in (200, 400)


def test_a_body_of_a_gigabyte_that_never_comes_costs_no_memory(server, connect, error):
    before = psutil.Process(server.pid).memory_info().rss
    binary = "Inference-Header-Content-Length: 100\r\n"
    waiting = connect(server).send((HEAD + binary + f"Content-Length: {1 << 30}\r\n\r\n").encode() + b" " * 100)
    refused = connect(server).send((HEAD + f"Content-Length: {1 << 30}\r\n\r\n").encode()).response()
    assert "--http-max-input-size" in error(refused)
    assert psutil.Process(server.pid).memory_info().rss - before < 10 << 20
    waiting.close()


@pytest.mark.parametrize("length", [2**31, 2**32, 2**63])
def test_lengths_beyond_31_bits_are_refused_by_value(exchange, error, length):
    text = error(exchange((HEAD + f"Content-Length: {length}\r\nInference-Header-Content-Length: 10\r\n\r\n").encode()))
    assert str(length) in text


@pytest.mark.parametrize("cut", [1, 20, 60, 100, 120])
def test_a_body_that_ends_too_soon_harms_nobody(server, connect, cut):
    data = post("/v2/models/echo0/infer", BODY)
    connection = connect(server).send(data[:-cut])
    connection.close()


def test_a_slow_head_on_many_connections_stops_nobody(server, connect):
    slow = [connect(server).send(b"POST /v2/models/echo0/in") for _ in range(200)]
    began = time.monotonic()
    assert connect(server).send(infer("echo", [1])).response()[0] == 200
    assert time.monotonic() - began < 1
    assert slow[0].send(b"fer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)).response()[0] == 200


# --- the metrics port


def test_the_metrics_port_is_held_to_the_same_framing(server):
    host, port = server.metrics.rsplit(":", 1)
    hostile = [
        chunked("/metrics", *([b"x"] * 70_000)),
        (HEAD + "Bad Name: x\r\n\r\n").encode(),
        (HEAD + "".join(f"h{index}: x\r\n" for index in range(10_000)) + "\r\n").encode(),
        post("/v2/models/echo0/infer", BODY),
    ]
    for data in hostile:
        with Connection((host, int(port))) as connection:
            assert connection.send(data).response()[0] in (400, 405, 431)
    with Connection((host, int(port))) as connection:
        status, _, body = connection.send(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").response()
    assert status == 200
    assert b"nv_inference_request_success" in body
