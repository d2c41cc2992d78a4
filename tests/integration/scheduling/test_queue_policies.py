"""Queue deadlines fire on time, and a queue's limit is exact, whatever the model is doing meanwhile."""

import threading
import time

import pytest
from model_folders import identity
from raw_http import Connection, infer
from waiting import wait_until

BUSY_MS = 1200
TIMEOUT_S = 0.3


def policy(action: str = "REJECT") -> str:
    return f"""
    dynamic_batching {{ default_queue_policy {{
        timeout_action: {action} default_timeout_microseconds: {int(TIMEOUT_S * 1e6)}
        allow_timeout_override: true max_queue_size: 2
    }} }}
    """


@pytest.fixture
def start(tmp_path, serve):
    def begin(max_batch_size: int, action: str = "REJECT"):
        identity(tmp_path, "slow", dims="1", max_batch_size=max_batch_size, delay_ms=BUSY_MS, more=policy(action))
        server = serve(tmp_path)
        busy = Connection(server.host_port).send(infer("slow", [0]))
        wait_until(lambda: server.metric("naiad_running_requests", model="slow") == 1)
        return server, busy

    return begin


def ask(server, results: dict, name: str, **parameters) -> threading.Thread:
    def run() -> None:
        with Connection(server.host_port) as client:
            began = time.monotonic()
            status, _, body = client.send(infer("slow", [1], parameters=parameters)).response()
            results[name] = (status, body.decode(), time.monotonic() - began)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_two_wait_and_the_others_are_refused_at_once(start):
    server, busy = start(1)
    results: dict = {}
    threads = [ask(server, results, name) for name in "BCDE"]
    for thread in threads:
        thread.join()
    refused = [result for result in results.values() if "Exceeds maximum queue size" in result[1]]
    expired = [result for result in results.values() if "Request timeout expired" in result[1]]
    assert (len(refused), len(expired)) == (2, 2)
    assert {result[0] for result in results.values()} == {503}
    assert all(result[2] < 0.15 for result in refused)
    assert all(TIMEOUT_S - 0.01 <= result[2] < TIMEOUT_S + 0.3 for result in expired)
    assert busy.response()[0] == 200
    busy.close()
    assert server.metric("nv_inference_request_failure", model="slow", reason="REJECTED") == 2
    assert server.metric("naiad_requests_refused_total", model="slow") == 2
    assert server.metric("nv_inference_exec_count", model="slow") == 1
    assert server.metric("nv_inference_pending_request_count", model="slow") == 0


def test_an_override_only_shortens(start):
    server, busy = start(4)
    results: dict = {}
    threads = [ask(server, results, "B", timeout=100_000), ask(server, results, "C", timeout=900_000)]
    for thread in threads:
        thread.join()
    assert 0.09 <= results["B"][2] < 0.29
    assert TIMEOUT_S - 0.01 <= results["C"][2] < TIMEOUT_S + 0.3
    assert busy.response()[0] == 200
    busy.close()


def test_delay_refuses_nothing_for_its_age(start):
    server, busy = start(1, "DELAY")
    results: dict = {}
    late = ask(server, results, "late")
    late.join()
    assert results["late"][0] == 200
    assert busy.response()[0] == 200
    busy.close()
    assert server.metric("nv_inference_request_failure", model="slow", reason="REJECTED") == 0
