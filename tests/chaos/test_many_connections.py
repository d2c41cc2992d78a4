"""Many connections at once, slow readers and large bodies of some clients don't touch the others."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
from model_folders import identity
from process_facts import facts
from raw_http import Connection, infer, post
from waiting import wait_until

LARGE = 64 * 1024 * 1024
LIMIT = 20
# What a live check may take beside a large request of another client; a busy machine stalls for 0.1 s by itself.
LONGEST_STALL_S = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("models")
    identity(repository, "echo")
    return serve_for_module(repository)


def live(connection: Connection) -> float:
    """Ask whether the server is live; return how long the answer took in seconds."""
    began = time.monotonic()
    assert connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").response()[0] == 200
    return time.monotonic() - began


def large_binary() -> bytes:
    tensor = {"name": "X", "shape": [1, LARGE // 4], "datatype": "FP32", "parameters": {"binary_data_size": LARGE}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    values = np.zeros(LARGE // 4, np.float32).tobytes()
    return post("/v2/models/echo/infer", head + values, f"Inference-Header-Content-Length: {len(head)}")


def test_a_thousand_connections_are_served_at_once_and_given_back(server, connect):
    base = facts(server.pid)
    clients = [connect(server) for _ in range(1000)]
    for turn in range(2):
        for index, client in enumerate(clients):
            client.send(infer("echo", [index + turn]))
        answers = [client.response() for client in clients]
        assert [status for status, _, _ in answers] == [200] * 1000
        assert [json.loads(body)["outputs"][0]["data"] for _, _, body in answers] == [[index + turn] for index in range(1000)]
    assert facts(server.pid).connections == 1000
    assert facts(server.pid).threads == base.threads
    for client in clients:
        client.close()
    wait_until(lambda: facts(server.pid).descriptors <= base.descriptors)


def test_readers_that_stand_still_hold_up_nobody_else(server, connect):
    stuck = [connect(server).send(large_binary()) for _ in range(2)]
    for client in stuck:
        wait_until(client.has_data_nowait)
    other = connect(server)
    assert [other.send(infer("echo", [value])).response()[0] for value in range(50)] == [200] * 50
    assert max(live(other) for _ in range(50)) < LONGEST_STALL_S
    for client in stuck:
        status, headers, body = client.response()
        assert (status, len(body)) == (200, int(headers["content-length"]))


def test_a_reader_that_leaves_its_answer_behind_gives_back_its_memory(server, connect):
    client = connect(server).send(large_binary())
    wait_until(client.has_data_nowait)
    holding = facts(server.pid).resident_bytes
    client.close()
    wait_until(lambda: facts(server.pid).resident_bytes < holding - LARGE // 2)


def test_large_json_of_one_client_doesnt_stall_another(server, connect):
    """Were 5 MB of JSON read or written on the loop, the others would be answered in the few turns between only."""
    count = 1_000_000
    request = infer("echo", [1.5] * count)
    busy, other = connect(server), connect(server)
    busy.socket.settimeout(15)
    sizes: list[int] = []

    def ask() -> None:
        for _ in range(2):
            status, _, body = busy.send(request).response()
            sizes.append(len(body) if status == 200 else -status)

    thread = threading.Thread(target=ask)
    thread.start()
    waits = [live(other)]
    while thread.is_alive():
        waits.append(live(other))
    thread.join()
    assert len(sizes) == 2
    assert min(sizes) > count * 3
    assert len(waits) > 200
    assert max(waits) < LONGEST_STALL_S


def test_beyond_its_limit_of_connections_the_server_says_503_and_goes_on(tmp_path, serve, connect):
    identity(tmp_path, "echo")
    server = serve(tmp_path, f"--http-max-connections={LIMIT}")
    wait_until(lambda: facts(server.pid).connections == 0)
    kept = [connect(server) for _ in range(LIMIT)]
    for client in kept:
        live(client)
    for _ in range(3):
        refused = connect(server)
        status, headers, body = refused.response()
        assert (status, headers["connection"]) == (503, "close")
        assert b"--http-max-connections" in body
        assert refused.is_at_end()
        refused.close()
    assert [client.send(infer("echo", [1])).response()[0] for client in kept] == [200] * LIMIT
    kept[0].close()
    wait_until(lambda: facts(server.pid).connections == LIMIT - 1)
    live(connect(server))
