"""How connections live: order of pipelined responses, keep-alive and close, Expect, HTTP/1.0, HEAD, targets, half-close."""

from __future__ import annotations

import json
import socket

import pytest
from raw_http import chunked, infer, post
from waiting import wait_until

META = b"GET /v2/models/echo HTTP/1.1\r\nHost: test\r\n\r\n"
INFER = "/v2/models/echo/infer"
BODY = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1]}]}'


def data_of(answer) -> list[float]:
    status, _, body = answer
    assert status == 200, answer
    return json.loads(body)["outputs"][0]["data"]


# --- pipelining


def test_a_hundred_pipelined_inferences_are_answered_in_order(server, connect):
    connection = connect(server).send(b"".join(infer("echo", [index]) for index in range(100)))
    assert [data_of(connection.response()) for _ in range(100)] == [[float(index)] for index in range(100)]


def test_hot_and_other_requests_are_answered_in_their_order(server, connect):
    connection = connect(server)
    for first_is_hot in (True, False):
        pair = [infer("echo", [7]), META] if first_is_hot else [META, infer("echo", [7])]
        connection.send(b"".join(pair * 20))
        for _ in range(20):
            answers = [connection.response(), connection.response()]
            hot, other = answers if first_is_hot else answers[::-1]
            assert data_of(hot) == [7.0]
            assert json.loads(other[2])["name"] == "echo"


def test_errors_in_the_middle_of_a_pipeline_stay_in_their_place(server, connect):
    requests = [infer("echo", [1]), infer("nobody", [1]), infer("echo", [2]), post(INFER, b"{"), META]
    requests += [b"GET /nowhere HTTP/1.1\r\nHost: test\r\n\r\n", infer("echo", ["x"]), infer("echo", [3])]
    connection = connect(server).send(b"".join(requests))
    assert [connection.response()[0] for _ in requests] == [200, 404, 200, 400, 200, 404, 400, 200]


def test_a_slow_request_holds_back_those_behind_it(server, scripted, connect):
    scripted.hold(1)
    connection = connect(server).send(infer("scripted", [1]) + infer("echo", [2]) + META)
    wait_until(lambda: scripted.ran(1))
    connection.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.socket.recv(1)
    connection.socket.settimeout(10)
    scripted.release()
    assert data_of(connection.response()) == [1.0]
    assert data_of(connection.response()) == [2.0]
    assert connection.response()[0] == 200


def test_a_malformed_request_behind_good_ones_lets_those_be_answered(server, connect):
    connection = connect(server).send(infer("echo", [1]) + META + b"BAD\r\n\r\n" + infer("echo", [2]))
    assert [connection.response()[0] for _ in range(3)] == [200, 200, 400]
    assert connection.is_at_end()


def test_a_request_that_ends_the_connection_ends_it_whatever_is_behind_it(server, connect):
    last = post(INFER, BODY, "Connection: close")
    connection = connect(server).send(infer("echo", [1]) + last + infer("echo", [2]))
    assert [connection.response()[0] for _ in range(2)] == [200, 200]
    assert connection.is_at_end()


# --- keep-alive and close


@pytest.mark.parametrize(
    "request_of", [lambda *lines: post(INFER, BODY, *lines), lambda *lines: post("/v2/repository/index", b"", *lines)]
)
def test_a_connection_stays_open_until_the_client_wants_it_closed(server, connect, request_of):
    connection = connect(server)
    for _ in range(3):
        status, headers, _ = connection.send(request_of()).response()
        assert (status, headers.get("connection", "")) == (200, "")
    status, headers, _ = connection.send(request_of("Connection: close")).response()
    assert (status, headers["connection"]) == (200, "close")
    assert connection.is_at_end()


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
def test_http_1_0_is_answered_and_the_connection_ends(server, connect, path):
    body = BODY if path == INFER else b""
    connection = connect(server).send(post(path, body).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    status, headers, answer = connection.response()
    assert (status, headers["connection"]) == (200, "close")
    assert json.loads(answer)
    assert connection.is_at_end()


def test_a_request_without_a_version_is_answered_and_the_connection_ends(server, connect):
    connection = connect(server).send(b"GET /v2\r\n\r\n")
    assert connection.response()[0] == 200
    assert connection.is_at_end()


def test_a_request_without_host_is_answered(server, connect):
    assert connect(server).send(b"GET /v2 HTTP/1.1\r\n\r\n").response()[0] == 200


@pytest.mark.parametrize("path", ["/v2", "/nowhere", "/v2/models/echo/infer", "/v2/health/live"])
def test_head_sends_no_body_and_the_connection_goes_on(server, connect, path):
    connection = connect(server).send(f"HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode() + infer("echo", [5]))
    head = connection.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert data_of(connection.response()) == [5.0]


@pytest.mark.parametrize("prefix", ["http://test", "http://test:8000", "HTTPS://other.example"])
def test_a_whole_url_may_be_the_target(server, connect, prefix):
    connection = connect(server)
    assert connection.send(f"GET {prefix}/v2 HTTP/1.1\r\nHost: test\r\n\r\n".encode()).response()[0] == 200
    assert data_of(connection.send(post(prefix + INFER, BODY)).response()) == [1.0]


@pytest.mark.parametrize("end", ["#part", "?a=b#part", "#part?a=b"])
def test_a_fragment_in_a_target_is_ignored(server, connect, end):
    assert connect(server).send(post(INFER + end, BODY)).response()[0] == 200
    assert connect(server).send(f"GET /v2{end} HTTP/1.1\r\nHost: test\r\n\r\n".encode()).response()[0] == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_offered_upgrade_is_ignored(server, connect, protocol):
    lines = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMAAABkAAQAAP__")
    assert data_of(connect(server).send(post(INFER, BODY, *lines)).response()) == [1.0]


# --- Expect: 100-continue


@pytest.mark.parametrize(
    ("path", "body"), [(INFER, BODY), ("/v2/models/gen/generate", b'{"text_input":"a"}'), ("/v2/repository/index", b"{}")]
)
@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_client_that_waits_for_100_is_told_at_once(server, connect, path, body, is_chunked):
    connection = connect(server)
    whole = chunked(path, body, lines=("Expect: 100-continue",)) if is_chunked else post(path, body, "Expect: 100-continue")
    head, _, rest = whole.partition(b"\r\n\r\n")
    connection.send(head + b"\r\n\r\n")
    assert connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
    status, headers, _ = connection.send(rest).response()
    assert status == 200
    if headers.get("connection") != "close":
        assert connection.send(infer("echo", [1])).response()[0] == 200


def test_a_client_that_does_not_wait_for_100_is_answered_too(server, connect):
    connection = connect(server).send(post(INFER, BODY, "Expect: 100-continue"))
    assert connection.response()[0] == 200


def test_100_comes_in_its_turn_behind_a_request_that_is_still_answered(server, scripted, connect):
    scripted.hold(1)
    waiting = post(INFER, BODY, "Expect: 100-continue").partition(b"\r\n\r\n")
    connection = connect(server).send(infer("scripted", [1]) + waiting[0] + waiting[1])
    wait_until(lambda: scripted.ran(1))
    scripted.release()
    first = connection.until(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200")
    size = int(first.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert json.loads(connection.exactly(size))["model_name"] == "scripted"
    assert connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
    assert data_of(connection.send(waiting[2]).response()) == [1.0]


@pytest.mark.parametrize("path", [INFER, "/v2/models/gen/generate", "/v2/repository/index"])
def test_a_body_that_is_over_the_limit_is_refused_in_place_of_100(server, connect, path):
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n"
    connection = connect(server).send(head.encode())
    assert connection.until(b"\r\n\r\n").startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("path", ["/nowhere", "/v2/health/live"])
def test_a_request_that_is_refused_in_place_of_100_leaves_no_doubt_where_the_next_begins(server, connect, path):
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    status, headers, _ = connect(server).send(head.encode()).response()
    assert (status, headers.get("connection")) == (404 if path == "/nowhere" else 405, "close")


# --- half-close and hang-up


@pytest.mark.parametrize("data", [post(INFER, BODY), META, post("/v2/models/gen/generate_stream", b'{"text_input":"a"}')])
def test_a_client_that_closes_its_direction_still_gets_its_answer(server, connect, data):
    connection = connect(server).send(data)
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.response()[0] == 200
    assert connection.is_at_end()


def test_a_client_that_closes_its_direction_while_its_request_runs_gets_its_answer(server, scripted, connect):
    scripted.hold(1)
    connection = connect(server).send(infer("scripted", [1]) + infer("echo", [2]))
    wait_until(lambda: scripted.ran(1))
    connection.socket.shutdown(socket.SHUT_WR)
    scripted.release()
    assert data_of(connection.response()) == [1.0]
    assert data_of(connection.response()) == [2.0]
    assert connection.is_at_end()


def test_a_half_request_is_dropped_when_its_client_closes(server, connect):
    connection = connect(server).send(post(INFER, BODY)[:-5])
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.is_at_end()


# --- large bodies


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 4, 10 << 20])
def test_large_tensors_arrive_and_come_back_to_the_byte_with_what_is_pipelined_behind(server, connect, size):
    blob = bytes(range(256)) * (size // 256) + b"\1\2\3\4" * (size % 256 // 4)
    item = {"name": "X", "shape": [1, size], "datatype": "UINT8", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    large = post("/v2/models/echo_uint8/infer", head + blob, f"Inference-Header-Content-Length: {len(head)}")
    connection = connect(server).send_and_read_on(large + infer("echo", [1]) + META + large)
    first, small, other, last = [connection.response() for _ in range(4)]
    assert (data_of(small), other[0]) == ([1.0], 200)
    for status, headers, body in (first, last):
        assert status == 200
        assert body[int(headers["inference-header-content-length"]) :] == blob
