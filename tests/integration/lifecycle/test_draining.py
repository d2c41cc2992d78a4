"""What a stop waits for, how long, and what it says: the answers themselves, down to their last byte."""

from __future__ import annotations

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from asking import Asker
from model_folders import identity
from raw_http import Connection, infer, post
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

LARGE = 32 * 1024 * 1024


@pytest.fixture
def model(tmp_path):
    made = ScriptedModel(tmp_path / "models", "held", max_batch_size=1)
    identity(tmp_path / "models", "echo")
    yield made
    made.release()


@pytest.fixture
def start(tmp_path, model, serve):
    return lambda *flags: Asker(serve(tmp_path / "models", *flags, environment=ENVIRONMENT), model)


def begin_stop(server) -> float:
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 503, 1)
    return time.monotonic()


def large_request() -> bytes:
    """Return a binary inference of `LARGE` bytes."""
    tensor = {"name": "X", "shape": [1, LARGE // 4], "datatype": "FP32", "parameters": {"binary_data_size": LARGE}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    values = np.arange(LARGE // 4, dtype=np.float32).tobytes()
    return post("/v2/models/echo/infer", head + values, f"Inference-Header-Content-Length: {len(head)}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once_whatever_connections_are_kept(start, connect, number):
    server = start().server
    kept = connect(server)
    assert kept.send(infer("echo", [1])).response()[0] == 200
    connect(server)
    began = time.monotonic()
    assert server.stop(number) == 0
    assert time.monotonic() - began < 2
    assert kept.is_at_end()


def test_without_a_timeout_an_idle_server_stops_well(start):
    assert start("--exit-timeout-secs=0").server.stop() == 0


def test_without_a_timeout_what_runs_gets_an_error(start):
    asker = start("--exit-timeout-secs=0")
    asked = asker.occupy(1)
    asker.server.process.send_signal(signal.SIGTERM)
    status, text = asked.answer()
    assert (status, "shutting down" in text) == (503, True)
    assert asker.server.wait() == 1


def read_slowly(connection, seconds: float) -> bytes:
    """Read the head of a response at once and some of its body over `seconds`."""
    received = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        received += connection.socket.recv(4096)
        time.sleep(0.02)
    return received


def test_a_slow_reader_gets_the_whole_answer(start, connect):
    """However long that takes within the exit timeout."""
    server = start("--exit-timeout-secs=10").server
    client = connect(server).send(large_request())
    wait_until(client.has_data_nowait)
    begin_stop(server)
    assert requests.get(f"{server.url}/v2/health/live", timeout=5).status_code == 200
    received = len(read_slowly(client, 1.5))
    while data := client.socket.recv(1 << 20):
        received += len(data)
    assert received > LARGE
    assert server.wait(5) == 0


def test_a_reader_that_stands_still_is_cut_when_the_exit_timeout_ends(start, connect):
    server = start("--exit-timeout-secs=1").server
    client = connect(server).send(large_request())
    wait_until(client.has_data_nowait)
    began = begin_stop(server)
    assert server.wait(5) == 1
    assert time.monotonic() - began < 3


def test_a_body_that_is_still_arriving_is_refused_in_whole(start, connect):
    asker = start()
    occupied = asker.occupy(1)
    client = connect(asker.server)
    whole = infer("echo", [1])
    client.send(whole[:-5])
    begin_stop(asker.server)
    status, headers, body = client.send(whole[-5:]).response()
    assert (status, headers["connection"], b"shutting down" in body) == (503, "close", True)
    assert client.is_at_end()
    asker.model.release()
    assert occupied.answer() == (200, [1])
    assert asker.server.wait(5) == 0


@pytest.mark.parametrize("route", ["infer", "generate", "generate_stream"])
def test_new_inferences_are_refused_as_going_away_and_never_as_unknown(start, route):
    asker = start()
    occupied = asker.occupy(1)
    begin_stop(asker.server)
    tensor = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    body = {"inputs": [tensor]} if route == "infer" else {"X": [1]}
    for model in ("echo", "held"):
        answer = requests.post(f"{asker.server.url}/v2/models/{model}/{route}", json=body, timeout=5)
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        assert "shutting down" in answer.json()["error"]
    asker.model.release()
    assert occupied.answer() == (200, [1])
    assert asker.server.wait(5) == 0


def test_traffic_that_goes_on_meets_no_reset_and_nothing_unknown_while_the_server_drains(start):
    """As behind a load balancer that lags: each request on a new connection, many at once, until the drain is over."""
    asker = start()
    occupied = asker.occupy(1)
    statuses: list[int] = []

    is_over = threading.Event()

    def ask_on() -> None:
        while not is_over.is_set():
            with Connection(asker.server.host_port) as client:
                statuses.append(client.send(infer("echo", [1])).response()[0])

    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(ask_on) for _ in range(4)]
        try:
            wait_until(lambda: statuses.count(200) > 50)
            begin_stop(asker.server)
            wait_until(lambda: statuses.count(503) > 50)
        finally:
            is_over.set()
    assert [client.exception() for client in clients] == [None] * 4
    assert set(statuses) == {200, 503}
    asker.model.release()
    assert occupied.answer() == (200, [1])
    assert asker.server.wait(5) == 0


def test_all_that_wait_when_the_exit_timeout_ends_get_an_error(start):
    asker = start("--exit-timeout-secs=1")
    occupied = asker.occupy(1)
    queued = asker.queue(2, 3)
    asker.server.process.send_signal(signal.SIGTERM)
    for asked in [occupied, *queued]:
        status, text = asked.answer()
        assert (status, "shutting down" in text) == (503, True)
    assert asker.server.wait(5) == 1


def test_a_client_that_hangs_up_while_the_server_drains_isnt_waited_for(start):
    asker = start()
    occupied = asker.occupy(1)
    gone = asker.queue(2)[0]
    begin_stop(asker.server)
    gone.hang_up()
    wait_until(lambda: asker.metric("nv_inference_request_failure", reason="CANCELED") == 1)
    asker.model.release()
    assert occupied.answer() == (200, [1])
    assert asker.server.wait(5) == 0
    assert not asker.model.ran(2)
