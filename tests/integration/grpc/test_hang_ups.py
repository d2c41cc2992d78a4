"""Clients that give up, in every way of gRPC: what waits is dropped, what runs is told, and the place is free at once."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from grpc_models import noted, rep_request, slow_request, write_grpc_models
from grpc_server import GrpcServer, stub
from http2_frames import END_STREAM, INFER, STREAM, call_fields, data, headers, message, reset
from process_facts import facts
from waiting import wait_until

# Connects, sends what stands on its standard input in hex, says so once something was answered, and reads on.
KILLED = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    peer.sendall(bytes.fromhex(sys.stdin.read()))
    read = 0
    while read < int(sys.argv[3]):
        read += len(peer.recv(65536))
    print("reads", flush=True)
    while peer.recv(65536):
        pass
"""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "slow", "poll", "rep")


@pytest.fixture(scope="module")
def server(repository, serve_for_module) -> GrpcServer:
    return GrpcServer(serve_for_module(repository))


def gauges(server: GrpcServer, model: str) -> tuple[float, float]:
    """Return how many requests wait and how many run."""
    return tuple(
        server.process.metric(name, model=model) for name in ("nv_inference_pending_request_count", "naiad_running_requests")
    )


def cancelled(server: GrpcServer, model: str) -> float:
    return server.process.metric("nv_inference_request_failure", model=model, reason="CANCELED")


def frames(path: bytes, stream_id: int, request, flags: int = 0) -> bytes:
    return headers(stream_id, call_fields(path)) + data(stream_id, message(request.SerializeToString()), flags)


def begin_and_leave(server: GrpcServer, way: str, count: int) -> None:
    """Begin `count` requests of ten seconds, wait until one runs and the others wait, and give all up."""
    request = slow_request(10_000, "poll")
    with ExitStack() as stack:
        if way in ("cancel", "deadline", "cancelled stream"):
            asks = stub(stack.enter_context(server.channel()))
            if way == "cancelled stream":
                calls = [asks.ModelStreamInfer(iter([request] * count))]
            else:
                calls = [asks.ModelInfer.future(request, timeout=1 if way == "deadline" else None) for _ in range(count)]
            wait_until(lambda: gauges(server, "poll") == (count - 1, 1), what="one runs and the others wait")
            for call in calls:
                if way == "deadline":
                    assert call.code().name == "DEADLINE_EXCEEDED"
                else:
                    call.cancel()
            return
        path = STREAM if "stream" in way else INFER
        connection = stack.enter_context(server.connection())
        for number in range(count):
            connection.send(frames(path, 2 * number + 1, request, END_STREAM if path == INFER else 0))
        wait_until(lambda: gauges(server, "poll") == (count - 1, 1), what="one runs and the others wait")
        if way.startswith("reset"):
            connection.send(b"".join(reset(2 * number + 1) for number in range(count)))
            wait_until(lambda: gauges(server, "poll") == (0, 0), what="the end of all")
        elif way.startswith("aborted"):
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


WAYS = ["cancel", "deadline", "cancelled stream", "reset", "reset streams", "closed", "closed streams", "aborted streams"]


@pytest.mark.parametrize("way", WAYS)
def test_who_gives_up_leaves_the_queue_and_the_model_at_once(server, repository, way):
    before = (noted(repository, "poll"), noted(repository, "poll", "cancelled.txt"), cancelled(server, "poll"))
    begin_and_leave(server, way, 10)
    began = time.monotonic()
    with server.channel() as channel:
        assert stub(channel).ModelInfer(slow_request(1, "poll"), timeout=5).raw_output_contents
    assert time.monotonic() - began < 1.5
    wait_until(lambda: gauges(server, "poll") == (0, 0), what="gauges at 0")
    after = (noted(repository, "poll"), noted(repository, "poll", "cancelled.txt"), cancelled(server, "poll"))
    # One ran and was told; the others never ran; the last one is the answered one.
    assert tuple(now - then for now, then in zip(after, before)) == (2, 1, 10)


def test_a_half_closed_stream_gets_its_answers(server):
    with server.connection() as connection:
        connection.send(frames(STREAM, 1, slow_request(200), END_STREAM))
        assert connection.grpc_status(1) == 0
        assert b"slow" in b"".join(each.payload for each in connection.frames if each.kind == 0)


def test_clients_killed_in_the_middle_of_a_stream_leave_nothing(server):
    host, port = server.host_port
    sent = (
        frames(STREAM, 1, rep_request(1_000_000, 1000)) + frames(STREAM, 3, slow_request(10)) + headers(5, call_fields(STREAM))
    )
    before = facts(server.process.pid)
    # A client that opens no windows is sent 64 KiB at most.
    for number in range(20):
        # Every other one is killed in the middle of a message of its own, too.
        begun = PREFACE + sent + (data(5, message(bytes(100), length=5000)) if number % 2 else b"")
        command = [sys.executable, "-c", KILLED, host, str(port), str(number * 2000 + 1)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            try:
                client.stdin.write(begun.hex())
                client.stdin.close()
                assert client.stdout.readline() == "reads\n"
            finally:
                client.kill()
    wait_until(lambda: gauges(server, "rep") == (0, 0), what="the end of all requests")
    wait_until(lambda: gauges(server, "slow") == (0, 0), what="the end of all requests")
    wait_until(lambda: facts(server.process.pid).connections == 0, what="the end of all connections")
    assert facts(server.process.pid).descriptors <= before.descriptors + 4
    server.check_serves()
    assert "Traceback" not in server.process.log()


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_connection_cut_in_the_middle_of_a_message_asks_nothing(server, repository, is_aborted):
    before = noted(repository, "slow")
    whole = message(slow_request(0).SerializeToString())
    for size in range(1, len(whole)):
        with server.connection() as connection:
            connection.send(headers(1, call_fields(INFER)) + data(1, whole[:size]))
            if is_aborted:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: facts(server.process.pid).connections == 0, what="the end of all connections")
    with server.channel() as channel:
        assert stub(channel).ModelInfer(slow_request(0), timeout=5).raw_output_contents
    assert noted(repository, "slow") == before + 1
