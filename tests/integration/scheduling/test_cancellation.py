"""A client that hangs up frees queue and model at once; one that only closed its own direction still gets its answer."""

import socket
import time

import pytest
import requests
from model_folders import identity
from raw_http import Connection, infer, post
from waiting import wait_until

DELAY_MS = 400


@pytest.fixture
def server(tmp_path, serve):
    identity(tmp_path, "slow", delay_ms=DELAY_MS)
    return serve(tmp_path)


def executions(server) -> float:
    return server.metric("nv_inference_exec_count", model="slow")


def generate() -> bytes:
    return post("/v2/models/slow/generate", b'{"X": [1]}')


def generate_stream() -> bytes:
    return post("/v2/models/slow/generate_stream", b'{"X": [1]}')


@pytest.mark.parametrize(
    "request_bytes", [infer("slow", [1]), generate(), generate_stream()], ids=["infer", "generate", "stream"]
)
def test_queued_requests_of_clients_that_hung_up_never_run(server, request_bytes):
    clients = [Connection(server.host_port).send(request_bytes) for _ in range(6)]
    wait_until(lambda: server.metric("nv_inference_pending_request_count", model="slow") == 5)
    for client in clients:
        client.close()
    wait_until(lambda: server.metric("nv_inference_pending_request_count", model="slow") == 0, DELAY_MS / 1000 + 0.5)
    began = time.monotonic()
    assert (
        server.infer("slow", {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}).status_code == 200
    )
    assert time.monotonic() - began < 2 * DELAY_MS / 1000 + 0.5
    assert executions(server) == 2
    assert server.metric("nv_inference_request_failure", model="slow", reason="CANCELED") == 6
    assert server.metric("naiad_running_requests", model="slow") == 0


def test_a_half_closed_client_gets_its_answer(server):
    with Connection(server.host_port).send(infer("slow", [7])) as client:
        client.socket.shutdown(socket.SHUT_WR)
        status, _, body = client.response()
        assert (status, b"7.0" in body) == (200, True)
        assert client.is_at_end()
    assert server.metric("nv_inference_request_failure", model="slow", reason="CANCELED") == 0


def test_a_half_closed_client_gets_all_its_pipelined_answers(server):
    with Connection(server.host_port).send(infer("slow", [1]) + infer("slow", [2])) as client:
        client.socket.shutdown(socket.SHUT_WR)
        assert [b"1.0" in client.response()[2], b"2.0" in client.response()[2]] == [True, True]
        assert client.is_at_end()


def test_requests_pipelined_behind_a_cancelled_one_are_dropped_with_it(server):
    client = Connection(server.host_port).send(infer("slow", [1]) * 3)
    wait_until(lambda: server.metric("naiad_running_requests", model="slow") == 1)
    client.close()
    wait_until(lambda: server.metric("naiad_running_requests", model="slow") == 0)
    assert executions(server) == 1
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200
