"""What no gRPC client sends: each is refused on its own, and the next call is answered by the same process, grown by little."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from grpc_models import echo_request, rep_request, slow_request, write_grpc_models
from grpc_server import GrpcServer, stub
from http2_frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    INITIAL_WINDOW_SIZE,
    RST_STREAM,
    SETTINGS,
    STREAM,
    WINDOW_UPDATE,
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
    window_update,
)
from process_facts import facts
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_until

MAX_STREAMS = 32
MAX_MESSAGE_BYTES = 16 << 20
MAY_GROW_BYTES = 40 << 20
UNIMPLEMENTED, INTERNAL, RESOURCE_EXHAUSTED, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 12, 13, 8, 3, 4
GZIP = (b"grpc-encoding", b"gzip")
ACKNOWLEDGED = 1
# Shared memory on the way to workers that is made when it is first needed, and kept.
SEGMENTS = 4
ECHO = message(echo_request(*range(100)).SerializeToString())
FLAGS = (f"--grpc-max-message-size={MAX_MESSAGE_BYTES}", f"--grpc-max-concurrent-streams={MAX_STREAMS}")


@pytest.fixture(scope="module")
def shared(tmp_path_factory, serve_for_module) -> GrpcServer:
    models = write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "slow", "rep")
    server = GrpcServer(serve_for_module(models, "--allow-client-shm=true", *FLAGS))
    server.check_serves()
    with server.channel() as channel:
        stub(channel).ModelInfer(echo_request(1))
    return server


@pytest.fixture
def server(shared) -> Iterator[GrpcServer]:
    process = shared.process
    wait_until(lambda: facts(process.pid).connections == 0)
    before = facts(process.pid)
    yield shared
    shared.check_serves()
    with shared.channel() as channel:
        assert stub(channel).ModelInfer(echo_request(5), timeout=5).raw_output_contents
        assert len(stub(channel).SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()).regions) == 0
    wait_until(lambda: facts(process.pid).connections == 0, what="the end of all connections")
    wait_until(lambda: facts(process.pid).descriptors <= before.descriptors + SEGMENTS, what="the end of their descriptors")
    for model in ("echo", "slow", "rep"):
        for name in ("nv_inference_pending_request_count", "naiad_running_requests"):
            wait_until(lambda name=name, model=model: process.metric(name, model=model) == 0, what=f"{name} of {model} at 0")
    assert facts(process.pid).resident_bytes - before.resident_bytes < MAY_GROW_BYTES
    assert "Traceback" not in process.log(), process.log()
    assert "fault of the server" not in process.log(), process.log()


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
            connection.send(call(number, INFER, ECHO))
        server.check_serves()


@pytest.mark.parametrize("size", [0, 1])
def test_a_hundred_thousand_frames_of_a_byte_or_none(server, size):
    # The message is answered, or refused for its many pieces; in any case it ends.
    body = message(echo_request(*range(24_980)).SerializeToString())
    pieces = body[:100_000] if size else bytes(100_000)
    frames = b"".join(data(1, pieces[index : index + size]) for index in range(len(pieces)))
    with server.connection() as connection:
        connection.send_and_read_on(headers(1, call_fields(INFER)) + frames + data(1, b"", END_STREAM))
        found = connection.read_until(lambda each: each.kind == GOAWAY or each.ends(1))
        assert found is None or found.kind == GOAWAY or connection.grpc_status(1) in (0, INTERNAL, RESOURCE_EXHAUSTED)


def test_a_message_in_frames_of_a_byte_is_answered(server):
    frames = b"".join(data(1, ECHO[index : index + 1]) for index in range(len(ECHO)))
    with server.connection() as connection:
        connection.send_and_read_on(headers(1, call_fields(INFER)) + frames + data(1, b"", END_STREAM))
        assert connection.grpc_status(1) == 0


def test_streams_that_the_client_leaves_half_closed_or_killed_go_with_the_connection(server):
    for _ in range(50):
        with server.connection() as connection:
            connection.send(headers(1, call_fields(STREAM)) + data(1, message(bytes(1000), length=5000)))
            connection.send(headers(3, call_fields(STREAM)) + data(3, message(slow_request(1).SerializeToString())))
            connection.send(headers(5, call_fields(STREAM)) + data(5, message(rep_request(100_000, 100).SerializeToString())))
            connection.read_until(lambda each: each.stream_id == 3)


def test_heads_that_come_byte_by_byte_or_never_end_delay_no_other(server):
    whole = headers(1, call_fields())
    with ExitStack() as stack:
        slow = [stack.enter_context(server.connection()) for _ in range(100)]
        for index, connection in enumerate(slow):
            for byte in whole[: 5 + index % 40]:
                connection.send(bytes([byte]))
        mute = [stack.enter_context(FrameConnection(server.host_port, preface=b"")) for _ in range(100)]
        for connection in mute:
            connection.send(b"PRI * HTT")
        server.check_serves()
        assert slow[0].send(whole[5:] + data(1, message(), END_STREAM)).grpc_status(1) == 0


RPCS = [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
GARBAGE = {
    "cut off": b"\x0a\xff",
    "field 0": b"\x00\x01",
    "endless number": b"\x08" + b"\xff" * 20,
    "group without end": b"\x0b" * 100,
    "deeply nested": b"".join(b"\x2a\x80\x80\x01" for _ in range(2000)),
    "text that is none": b"\x0a\x02\xff\xfe",
    "wrong kinds": b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x1d" + bytes(4),
    "long strings": b"\x0a\x80\x40" + b"a" * 8192,
}


@pytest.mark.parametrize("rpc", RPCS)
def test_what_is_no_message_of_the_rpc_ends_its_call_only(server, rpc):
    path = b"/inference.GRPCInferenceService/" + rpc.encode()
    with server.connection() as connection:
        for number, body in enumerate(GARBAGE.values()):
            connection.send(call(2 * number + 1, path, message(body)))
        statuses = [connection.grpc_status(2 * number + 1) for number in range(len(GARBAGE))]
        last = 2 * len(GARBAGE) + 1
        assert connection.send(call(last, INFER, ECHO)).grpc_status(last) == 0
    # Fields that a message doesn't know are skipped; what can't be read at all is refused.
    assert {INTERNAL, -1, 2}.isdisjoint(statuses), dict(zip(GARBAGE, statuses))
    if rpc != "ModelStreamInfer":
        assert INVALID_ARGUMENT in statuses


def test_several_messages_or_none_in_a_unary_call_are_refused(server):
    with server.connection() as connection:
        connection.send(call(1, INFER, ECHO + ECHO) + call(3, INFER, b""))
        assert connection.grpc_status(1) != 0
        assert connection.grpc_status(3) != 0
        assert connection.send(call(5, INFER, ECHO)).grpc_status(5) == 0


def test_four_thousand_streams_at_once_are_answered_and_ten_thousand_refused_in_part(tmp_path_factory, serve):
    models = write_grpc_models(tmp_path_factory.mktemp("models"), "echo")
    server = GrpcServer(serve(models))
    with server.connection() as connection:
        begun = [headers(number, call_fields(STREAM)) + data(number, ECHO) for number in range(1, 8001, 2)]
        connection.send_and_read_on(window_update(0, 1 << 30) + b"".join(begun))
        ended = [data(number, b"", END_STREAM) for number in range(1, 8001, 2)]
        connection.send_and_read_on(b"".join(ended))
        open_streams = set(range(1, 8001, 2))
        connection.read_until(
            lambda each: each.ends(each.stream_id) and not (open_streams.discard(each.stream_id) or open_streams)
        )
        assert {each.kind for each in connection.frames} <= {SETTINGS, WINDOW_UPDATE, HEADERS, DATA}
        assert open_streams == set()
    with server.connection() as connection:
        connection.send_and_read_on(b"".join(headers(number, call_fields(STREAM)) for number in range(1, 20_001, 2)))
        found = connection.read_until(lambda each: each.kind in (GOAWAY, RST_STREAM))
        assert found is None or found.kind == GOAWAY or found.stream_id == 2 * 4096 + 1
        server.check_serves()
    wait_until(lambda: facts(server.process.pid).connections == 0, what="the end of all connections")
    assert "Traceback" not in server.process.log()
