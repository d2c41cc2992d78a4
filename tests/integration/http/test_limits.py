"""The size limit on every route and for every form of a body: told by size, limit and flag, before the body has been read."""

from __future__ import annotations

import gzip
import json

import psutil
import pytest
from http_routes import POSTS
from raw_http import chunked, post

LIMIT_BYTES = 1 << 20
FLAG = "--http-max-input-size"
FRAMES = {
    "/v2/models/echo_bytes/infer": b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"BYTES","data":["%b"]}]}',
    "/v2/models/gen/generate": b'{"text_input":"%b"}',
    "/v2/models/gen/generate_stream": b'{"text_input":"%b"}',
    "/v2/repository/index": b'{"ready":false,"x":"%b"}',
}


def body_of(path: str, size: int) -> bytes:
    """Return a good body of exactly `size` bytes."""
    frame = FRAMES[path]
    return frame % (b"x" * (size - len(frame) + 2))


@pytest.mark.parametrize("path", FRAMES)
@pytest.mark.parametrize("size", [LIMIT_BYTES - 1, LIMIT_BYTES])
@pytest.mark.parametrize("send", [post, chunked], ids=["length", "chunked"])
def test_a_json_body_up_to_the_limit_is_taken(exchange, path, size, send):
    assert exchange(send(path, body_of(path, size)))[0] == 200


@pytest.mark.parametrize("path", FRAMES)
@pytest.mark.parametrize("send", [post, chunked], ids=["length", "chunked"])
def test_one_byte_more_is_refused_with_limit_and_flag(exchange, error, path, send):
    text = error(exchange(send(path, body_of(path, LIMIT_BYTES + 1))), 400, 413)
    assert str(LIMIT_BYTES) in text
    assert FLAG in text


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("length", [LIMIT_BYTES + 1, 3_000_000_000, 2**40])
def test_an_announced_length_over_the_limit_is_refused_before_the_body_is_sent(server, connect, error, path, length):
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n".encode()
    assert str(length) in error(connect(server).send(head).response())


@pytest.mark.parametrize("path", POSTS)
def test_a_client_that_sends_on_reads_the_refusal_and_no_reset(server, connect, error, path):
    """Far more than the sockets' buffers hold is still to be sent when the refusal is."""
    size = 30 * LIMIT_BYTES
    data = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n".encode() + b" " * size
    assert FLAG in error(connect(server).send(data).response())


@pytest.mark.parametrize("path", POSTS)
def test_a_chunked_body_without_end_is_stopped_at_the_limit(server, connect, error, path):
    before = psutil.Process(server.pid).memory_info().rss
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    connection = connect(server).send(head)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    for _ in range(24):
        connection.send(chunk)
    assert FLAG in error(connection.response(), 400, 413)
    assert psutil.Process(server.pid).memory_info().rss - before < 8 * LIMIT_BYTES


def test_a_binary_tensor_is_not_bounded_by_the_limit(server, connect):
    size = 8 << 20
    item = {"name": "X", "shape": [1, size], "datatype": "UINT8", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    data = post("/v2/models/echo_uint8/infer", head + b"\7" * size, f"Inference-Header-Content-Length: {len(head)}")
    status, _, body = connect(server).send_and_read_on(data).response()
    assert status == 200
    assert body.endswith(b"\7" * size)


@pytest.mark.parametrize("length", [LIMIT_BYTES + 1, 0])
def test_the_json_part_and_a_raw_body_are_bounded(server, connect, error, length):
    lines = f"Content-Length: {2 * LIMIT_BYTES}\r\nInference-Header-Content-Length: {length}"
    head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\n{lines}\r\n\r\n".encode()
    assert FLAG in error(connect(server).send(head).response())


@pytest.mark.parametrize("coding", ["gzip"])
def test_a_small_body_that_unpacks_to_much_is_stopped_at_the_limit(server, exchange, error, coding):
    before = psutil.Process(server.pid).memory_info().rss
    bomb = gzip.compress(body_of("/v2/models/echo_bytes/infer", 20 << 20))
    assert len(bomb) < 64 << 10
    assert FLAG in error(exchange(post("/v2/models/echo_bytes/infer", bomb, f"Content-Encoding: {coding}")))
    assert psutil.Process(server.pid).memory_info().rss - before < 8 * LIMIT_BYTES


def test_tensors_are_bounded_by_their_decoded_size_too(exchange, error):
    """200,000 short numbers are 400 kB of JSON and 1.6 MB of FP64."""
    item = {"name": "X", "shape": [1, 200_000], "datatype": "FP64", "data": [1] * 200_000}
    text = json.dumps({"inputs": [item]}, separators=(",", ":")).encode()
    assert len(text) < LIMIT_BYTES
    assert "decoded data of input 'X' of 1600000 bytes" in error(exchange(post("/v2/models/echo_fp64/infer", text)))
