"""A decoupled model that answers from its own threads: every request gets its responses in order, and none is lost."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from python_models import IO, Config, source, write_python_model
from raw_http import Connection, post
from server_process import ServerProcess
from waiting import wait_until

CONFIG = Config((IO("X", dims="1"),), (IO("Y", dims="1"),), 0, is_decoupled=True)


@pytest.fixture
def folder(tmp_path):
    return write_python_model(tmp_path / "models", "pool", source("pool"), CONFIG)


@pytest.fixture
def server(folder, serve) -> ServerProcess:
    return serve(folder.parent)


def stream(session: requests.Session, server: ServerProcess, x: float) -> list[float]:
    response = session.post(f"{server.url}/v2/models/pool/generate_stream", json={"X": x}, timeout=20)
    assert response.status_code == 200, response.text
    return [json.loads(line[6:])["Y"] for line in response.text.splitlines() if line]


def ask_many(server: ServerProcess, first: int, count: int) -> None:
    with requests.Session() as session:
        for x in range(first, first + count):
            assert stream(session, server, x) == [x, x + 1, x + 2]


def cut_off_again_and_again(server: ServerProcess, done: threading.Event) -> None:
    """Ask and hang up in the middle of the answer until `done`."""
    while not done.is_set():
        with Connection(server.host_port) as client:
            client.send(post("/v2/models/pool/generate_stream", b'{"X": 7}'))
            client.until(b"data: ")


def read_slowly(server: ServerProcess, count: int) -> list[bytes]:
    """Send `count` requests in one go and read their answers a byte at a time."""
    with Connection(server.host_port) as client:
        client.send(post("/v2/models/pool/generate_stream", b'{"X": 5}') * count)
        return [client.response()[2] for _ in range(count)]


def run(server: ServerProcess, count: int) -> None:
    done = threading.Event()
    with ThreadPoolExecutor(10) as threads:
        cutting = threads.submit(cut_off_again_and_again, server, done)
        slow = threads.submit(read_slowly, server, 50)
        try:
            for asking in [threads.submit(ask_many, server, number * 1_000_000, count) for number in range(8)]:
                asking.result()
            answers = slow.result()
        finally:
            done.set()
        cutting.result()
    assert [answer.count(b"data: ") for answer in answers] == [3] * 50
    for gauge in ("naiad_running_requests", "nv_inference_pending_request_count"):
        wait_until(lambda gauge=gauge: server.metric(gauge, model="pool") == 0, what=f"{gauge} at 0")
    with requests.Session() as session:
        assert stream(session, server, 1) == [1, 2, 3]


def test_each_request_gets_its_three_responses_in_order_beside_slow_and_lost_clients(server):
    run(server, 40)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_tens_of_thousands_of_requests_leave_the_servers_memory_bounded(server):
    run(server, 500)
    before = psutil.Process(server.pid).memory_info().rss
    run(server, 6_000)
    assert psutil.Process(server.pid).memory_info().rss - before < 50 * 1024 * 1024


def test_what_is_sent_after_the_end_is_refused_in_the_model_and_never_reaches_the_client(server, folder):
    with requests.Session() as session:
        assert stream(session, server, -1) == [-1, 0, 1]
    wait_until((folder / "told").exists, what="the note")
    assert (folder / "told").read_text() == "Unable to send response. Response sender has been closed."


def test_a_sender_that_is_let_go_without_an_end_ends_its_request_with_an_error(server):
    response = requests.post(f"{server.url}/v2/models/pool/generate_stream", json={"X": -2}, timeout=10)
    assert (response.status_code, "without the final flag" in response.text) == (500, True)
