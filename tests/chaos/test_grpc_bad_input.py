"""What no gRPC client sends: each is refused on its own, and the next call is answered by the same process, grown by little."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import pytest
from grpc_echo import MAX_STREAMS, EchoProcess
from grpc_server import GrpcServer
from http2_frames import (
    END_STREAM,
    GOAWAY,
    INFER,
    INITIAL_WINDOW_SIZE,
    RST_STREAM,
    STREAM,
    FrameConnection,
    block,
    call,
    call_fields,
    continuation,
    data,
    frame,
    headers,
    message,
    ping,
    reset,
    settings,
)
from process_facts import facts
from waiting import wait_until

MAY_GROW_BYTES = 40 << 20
UNIMPLEMENTED, INTERNAL, RESOURCE_EXHAUSTED, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 12, 13, 8, 3, 4
GZIP = (b"grpc-encoding", b"gzip")
SETTINGS, ACKNOWLEDGED = 4, 1


@pytest.fixture(scope="module")
def shared() -> Iterator[GrpcServer]:
    process = EchoProcess()
    server = GrpcServer(process)
    server.check_serves()
    yield server
    assert process.log() == ""


@pytest.fixture
def server(shared) -> Iterator[GrpcServer]:
    before = facts(shared.process.pid).resident_bytes
    yield shared
    shared.check_serves()
    wait_until(lambda: facts(shared.process.pid).connections == 0, what="the end of all connections")
    assert facts(shared.process.pid).resident_bytes - before < MAY_GROW_BYTES


REFUSED = {
    "no such RPC": (call(1, b"/inference.GRPCInferenceService/Nothing"), UNIMPLEMENTED),
    "no such service": (call(1, b"/x.Y/Z"), UNIMPLEMENTED),
    "path without slash": (call(1, b"/"), UNIMPLEMENTED),
    "flag of 2": (call(1, INFER, message(b"x", flag=2)), INTERNAL),
    "flag of 255": (call(1, INFER, message(b"x", flag=255)), INTERNAL),
    "compressed without encoding": (call(1, INFER, message(b"x", flag=1)), INTERNAL),
    "length longer than the body": (call(1, INFER, message(b"x", length=100)), INTERNAL),
    "half a prefix": (call(1, INFER, b"\0\0\0"), INTERNAL),
    "length of 2 GiB": (call(1, INFER, message(b"x", length=1 << 31)), RESOURCE_EXHAUSTED),
    "length of 4 GiB": (call(1, INFER, message(b"x", length=(1 << 32) - 1)), RESOURCE_EXHAUSTED),
    "no gzip": (call(1, INFER, message(b"no gzip", flag=1), GZIP), INVALID_ARGUMENT),
    "half a gzip": (call(1, INFER, message(gzip.compress(bytes(range(256)))[:50], flag=1), GZIP), INVALID_ARGUMENT),
    "unknown encoding": (call(1, INFER, message(), (b"grpc-encoding", b"lzma")), UNIMPLEMENTED),
    "timeout of 1 ns": (call(1, INFER, message(), (b"grpc-timeout", b"1n")), DEADLINE_EXCEEDED),
    "timeout of 1 us": (call(1, INFER, message(), (b"grpc-timeout", b"1u")), DEADLINE_EXCEEDED),
    "timeout without unit": (call(1, INFER, message(), (b"grpc-timeout", b"10")), INVALID_ARGUMENT),
    "timeout of nine digits": (call(1, INFER, message(), (b"grpc-timeout", b"123456789S")), INVALID_ARGUMENT),
    "negative timeout": (call(1, INFER, message(), (b"grpc-timeout", b"-1S")), INVALID_ARGUMENT),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_call_gets_its_status_and_the_next_one_on_the_connection_an_answer(server, name):
    sent, status = REFUSED[name]
    with server.connection() as connection:
        assert connection.send(sent).grpc_status(1) == status
        assert connection.send(call(3)).grpc_status(3) == 0


@pytest.mark.parametrize("content_type", [b"application/json", b"text/html", b"application/grpcx", b""])
def test_what_is_no_grpc_is_415(server, content_type):
    fields = [*call_fields()[:-1], (b"content-type", content_type)]
    with server.connection() as connection:
        assert connection.send(headers(1, fields) + data(1, message(), END_STREAM)).http_status(1) == 415
        assert connection.send(call(3)).grpc_status(3) == 0


def test_a_method_other_than_post_is_405(server):
    with server.connection() as connection:
        assert connection.send(headers(1, [(b":method", b"GET"), *call_fields()[1:]], 5)).http_status(1) == 405
        assert connection.send(call(3)).grpc_status(3) == 0


def test_a_gzip_that_unpacks_to_more_than_a_message_may_hold_is_refused(server):
    bomb = gzip.compress(bytes(100 << 20), 1)
    with server.connection() as connection:
        pieces = [bomb[start : start + 16384] for start in range(0, len(bomb), 16384)]
        body = [message(flag=1, length=len(bomb)), *pieces]
        # The server's larger windows hold from the moment its settings are acknowledged.
        acknowledged = frame(SETTINGS, ACKNOWLEDGED, 0, b"")
        call_of_bomb = headers(1, call_fields(INFER, GZIP)) + b"".join(data(1, piece) for piece in body)
        connection.send_and_read_on(acknowledged + call_of_bomb)
        assert connection.grpc_status(1) in (RESOURCE_EXHAUSTED, INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)]
)
def test_another_protocol_is_cut_off(server, sent):
    with FrameConnection(server.host_port, preface=b"") as connection:
        connection.send(sent).read_until(lambda each: each.kind == GOAWAY)
        connection.read_until(lambda each: False)
        assert connection.is_closed


CUT_OFF: dict[str, Callable[[], bytes]] = {
    "pings": lambda: ping() * 100_000,
    "settings": lambda: settings((INITIAL_WINDOW_SIZE, 65535)) * 100_000,
    "rapid resets": lambda: b"".join(headers(n, call_fields()) + reset(n) for n in range(1, 40_001, 2)),
    "continuations": lambda: frame(1, 0, 1, block(call_fields())) + continuation(1, b"", 0) * 100_000,
    "full continuations": lambda: frame(1, 0, 1, block(call_fields())) + continuation(1, block([(b"a", b"b")]) * 2000, 0) * 200,
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_flood_of_frames_ends_its_connection(server, name):
    with server.connection() as connection:
        connection.send_and_read_on(CUT_OFF[name]()).read_until(lambda each: each.kind == GOAWAY)
        connection.read_until(lambda each: False)
        assert connection.is_closed


@pytest.mark.parametrize("size", [100_000, 10_000_000])
def test_huge_metadata_is_refused(server, size):
    field = block([(b"x-huge", b"v" * size)])
    pieces = [field[start : start + 16000] for start in range(0, len(field), 16000)]
    sent = frame(1, END_STREAM, 1, block(call_fields())) + b"".join(continuation(1, piece, 0) for piece in pieces[:-1])
    with server.connection() as connection:
        connection.send_and_read_on(sent + continuation(1, pieces[-1]))
        found = connection.read_until(lambda each: each.kind in (GOAWAY, RST_STREAM) or each.ends(1))
        assert found is None or found.kind in (GOAWAY, RST_STREAM) or connection.grpc_status(1) != 0


def test_streams_over_the_limit_are_refused_each_on_its_own(server):
    with server.connection() as connection:
        connection.send_and_read_on(b"".join(headers(n, call_fields(STREAM)) for n in range(1, 20_001, 2)))
        found = connection.read_until(lambda each: each.kind in (GOAWAY, RST_STREAM))
        assert found is None or found.kind == GOAWAY or found.stream_id == 2 * MAX_STREAMS + 1


def test_a_client_that_never_opens_its_window_delays_no_other(server):
    with server.connection((INITIAL_WINDOW_SIZE, 0)) as connection:
        for number in range(1, 2 * MAX_STREAMS, 2):
            connection.send(call(number, INFER, message(bytes(1000))))
        server.check_serves()


@pytest.mark.parametrize("size", [0, 1])
def test_a_hundred_thousand_frames_of_a_byte_or_none(server, size):
    # The message is answered, or refused for its many pieces; in any case it ends.
    body = message(bytes(99_995))[: 100_000 if size else 0]
    frames = b"".join(data(1, body[index : index + size]) for index in range(100_000))
    with server.connection() as connection:
        connection.send_and_read_on(headers(1, call_fields(INFER)) + frames + data(1, b"", END_STREAM))
        found = connection.read_until(lambda each: each.kind == GOAWAY or each.ends(1))
        assert found is None or found.kind == GOAWAY or connection.grpc_status(1) in (0, INTERNAL, RESOURCE_EXHAUSTED)


def test_streams_that_the_client_leaves_half_closed_or_killed_go_with_the_connection(server):
    for _ in range(50):
        with server.connection() as connection:
            connection.send(headers(1, call_fields(STREAM)) + data(1, message(bytes(1000), length=5000)))
            connection.send(headers(3, call_fields(STREAM)) + data(3, message(b"whole")))
            connection.read_until(lambda each: each.stream_id == 3)
