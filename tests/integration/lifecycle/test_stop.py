"""Stopping the server while traffic still comes in: nothing accepted is lost, nothing new is told that models don't exist."""

import signal
import threading
import time

import pytest
import requests
from model_folders import identity
from raw_http import Connection, infer
from waiting import wait_until

DELAY_MS = 600


@pytest.fixture
def server(tmp_path, serve):
    identity(tmp_path, "echo")
    identity(tmp_path, "slow", delay_ms=DELAY_MS)
    return serve(tmp_path, "--exit-timeout-secs=10")


def begin_slow(server, connect) -> Connection:
    client = connect(server).send(infer("slow", [1]))
    wait_until(lambda: server.metric("naiad_running_requests", model="slow") == 1)
    return client


def is_ready(server) -> bool:
    return requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200


def test_what_is_in_flight_is_answered_and_what_is_new_is_refused(server, connect):
    kept = connect(server)
    assert kept.send(infer("echo", [1])).response()[0] == 200
    running = begin_slow(server, connect)
    queued = connect(server).send(infer("slow", [2]))
    wait_until(lambda: server.metric("nv_inference_pending_request_count", model="slow") == 1)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_ready(server), 0.5)
    assert time.monotonic() - began < 0.3
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 503
    assert requests.get(f"{server.url}/v2/health/live", timeout=5).status_code == 200
    assert requests.get(f"http://{server.metrics}/metrics", timeout=5).status_code == 200
    status, headers, body = kept.send(infer("echo", [1])).response()
    assert (status, headers["connection"]) == (503, "close")
    assert b"shutting down" in body
    assert kept.is_at_end()
    assert server.infer("echo", {"inputs": []}).status_code == 503
    assert running.response()[0] == 200
    assert queued.response()[0] == 200
    assert server.wait(5) == 0
    assert time.monotonic() - began < 5


def test_a_busy_server_loses_no_request(server):
    """Many clients ask on until they are refused: every answer is 200 or 503, and whole."""
    statuses: list[int] = []

    def ask() -> None:
        with Connection(server.host_port) as client:
            while True:
                try:
                    status, headers, _ = client.send(infer("echo", [1])).response()
                except (EOFError, ConnectionError):
                    # Only an idle connection may be closed under the client's next request.
                    return
                statuses.append(status)
                if headers.get("connection") == "close":
                    return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(statuses) > 200)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(10)
    assert server.wait(5) == 0
    assert set(statuses) <= {200, 503}


def test_a_request_that_outlives_the_exit_timeout_gets_an_error(tmp_path, serve, connect):
    identity(tmp_path, "slow", delay_ms=10_000)
    server = serve(tmp_path, "--exit-timeout-secs=1")
    running = begin_slow(server, connect)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    status, _, body = running.response()
    assert (status, b"shutting down" in body) == (503, True)
    assert server.wait(5) == 1
    assert 0.9 < time.monotonic() - began < 4


def test_a_second_sigterm_changes_nothing(server, connect):
    running = begin_slow(server, connect)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_ready(server))
    server.process.send_signal(signal.SIGTERM)
    assert running.response()[0] == 200
    assert server.wait(5) == 0


def test_a_second_interrupt_ends_at_once(tmp_path, serve, connect):
    identity(tmp_path, "slow", delay_ms=10_000)
    server = serve(tmp_path)
    begin_slow(server, connect)
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: not is_ready(server))
    began = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    assert server.wait(5) == 130
    assert time.monotonic() - began < 2


def test_the_shutdown_delay_serves_on_while_not_ready(tmp_path, serve):
    identity(tmp_path, "echo")
    server = serve(tmp_path, "--shutdown-delay-secs=1")
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_ready(server))
    with Connection(server.host_port) as client:
        assert client.send(infer("echo", [1])).response()[0] == 200
    assert server.wait(5) == 0
    assert time.monotonic() - began >= 0.95
