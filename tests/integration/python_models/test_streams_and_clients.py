"""Python models that answer any number of times, as their clients see it: pace, loss, counts, and a worker's death."""

from __future__ import annotations

import json
import socket

import pytest
import requests
from model_folders import write_model
from process_facts import facts
from raw_http import post
from waiting import wait_until

SENDING = """
import os
import pathlib
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.notes = pathlib.Path(args["model_repository"], "notes")
        sent = pb_utils.MetricFamily(name="sent_responses", description="Sent responses", kind=pb_utils.MetricFamily.COUNTER)
        self.sent = sent.Metric(labels={"model": "sending"})

    def execute(self, requests):
        for request in requests:
            self.answer(request, request.get_response_sender())

    def answer(self, request, sender):
        count = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
        if count < 0:
            os._exit(3)
        for _ in range(count):
            if request.is_cancelled():
                self.notes.write_text("cancelled")
                break
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros(65536, np.float32))]))
            self.sent.increment(1)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
POLLING = """
import pathlib
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.notes = pathlib.Path(args["model_repository"], "notes")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.notes.write_text("running")
        ends = time.monotonic() + 30
        while not request.is_cancelled() and time.monotonic() < ends:
            time.sleep(0.02)
        self.notes.write_text("cancelled" if request.is_cancelled() else "ended")
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros(1, np.float32))])
"""
CONFIG = """
backend: "python"
input [{ name: "N" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]
"""
INFER = json.dumps({"inputs": [{"name": "N", "shape": [1], "datatype": "INT32", "data": [1]}]}).encode()
RESPONSE_BYTES = 65536 * 4


class Model:
    def __init__(self, server, folder) -> None:
        self.server = server
        self.notes = folder / "notes"
        self.path = f"/v2/models/{folder.name}"

    def said(self) -> str:
        return self.notes.read_text() if self.notes.exists() else ""

    def get(self, path: str) -> requests.Response:
        return requests.get(self.server.url + self.path + path, timeout=10)

    def post(self, path: str, body: bytes) -> requests.Response:
        return requests.post(self.server.url + self.path + path, data=body, timeout=10)

    def open(self, path: str, body: bytes) -> socket.socket:
        connection = socket.create_connection(self.server.host_port)
        connection.sendall(post(self.path + path, body))
        return connection


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("streams")
    folders = {}
    for name, source, more in (("sending", SENDING, "model_transaction_policy { decoupled: true }"), ("polling", POLLING, "")):
        folders[name] = write_model(repository, name, CONFIG + more)
        (folders[name] / "1" / "model.py").write_text(source)
    server = serve_for_module(repository, "--strict-readiness=true")
    return {name: Model(server, folder) for name, folder in folders.items()}


@pytest.fixture
def sending(models) -> Model:
    models["sending"].notes.unlink(missing_ok=True)
    return models["sending"]


@pytest.fixture
def polling(models) -> Model:
    models["polling"].notes.unlink(missing_ok=True)
    return models["polling"]


def test_a_client_that_does_not_read_stops_the_model_and_takes_no_memory(sending):
    server = sending.server
    before_bytes = facts(server.pid).resident_bytes
    sent_before = server.metric("sent_responses", model="sending")
    counts: list[float] = []

    def is_at_rest() -> bool:
        counts.append(server.metric("sent_responses", model="sending") - sent_before)
        return counts[-1] > 0 and counts[-20:] == [counts[-1]] * 20

    with sending.open("/generate_stream", b'{"N": 1000000}'):
        wait_until(is_at_rest, what="a model without a reader at rest")
        assert server.metric("naiad_running_requests", model="sending") == 1
        assert facts(server.pid).resident_bytes - before_bytes < 100 * RESPONSE_BYTES
    wait_until(lambda: sending.said() == "cancelled")
    wait_until(lambda: server.metric("naiad_running_requests", model="sending") == 0)


@pytest.mark.parametrize("path", ["infer", "generate", "generate_stream"])
def test_a_client_that_hangs_up_cancels_a_running_request_though_nothing_was_sent(polling, path):
    connection = polling.open(f"/{path}", INFER if path == "infer" else b'{"N": 1}')
    wait_until(lambda: polling.said() == "running")
    connection.close()
    wait_until(lambda: polling.said() == "cancelled")
    wait_until(lambda: polling.server.metric("naiad_running_requests", model="polling") == 0)


def test_a_client_that_only_closed_its_direction_reads_on(sending):
    with sending.open("/generate_stream", b'{"N": 4}') as connection:
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert received.count(b"data: ") == 4


@pytest.mark.parametrize(("count", "answers"), [(0, 0), (1, 1), (3, 3)])
def test_a_stream_has_an_event_for_each_response_and_none_for_the_end(sending, count, answers):
    response = sending.post("/generate_stream", b'{"N": %d}' % count)
    assert (response.status_code, response.text.count("data: ")) == (200, answers)


def test_responses_count_by_their_index(sending):
    before = response_counts(sending)
    sending.post("/generate_stream", b'{"N": 2}')
    after = response_counts(sending)
    changes = {
        index: {kind: after[index][kind] - before.get(index, {}).get(kind, 0) for kind in after[index]} for index in after
    }
    assert [changes[index]["success"] for index in ("0", "1")] == [1, 1]
    assert (changes["2"]["success"], changes["2"]["empty_response"]) == (0, 1)


def response_counts(model: Model) -> dict[str, dict[str, int]]:
    [stats] = model.get("/stats").json()["model_stats"]
    return {index: {kind: entry["count"] for kind, entry in kinds.items()} for index, kinds in stats["response_stats"].items()}


def test_infer_of_a_decoupled_model_is_a_501_and_generate_takes_exactly_one_response(sending):
    response = sending.post("/infer", INFER)
    assert response.status_code == 501
    assert "HTTP end point doesn't support models with decoupled transaction policy" in response.json()["error"]
    assert "exactly 1 response" in sending.post("/generate", b'{"N": 0}').json()["error"]
    assert "exactly 1 response" in sending.post("/generate", b'{"N": 2}').json()["error"]
    assert len(sending.post("/generate", b'{"N": 1}').json()["Y"]) == RESPONSE_BYTES // 4


def test_while_a_worker_comes_back_nothing_is_ready_and_then_everything_is(sending):
    health = f"{sending.server.url}/v2/health/ready"
    answer = sending.post("/generate", b'{"N": -1}')
    assert answer.status_code == 503
    seen = set()

    def is_back() -> bool:
        ready = sending.get("/ready")
        seen.add((ready.status_code, "exited with code 3" in ready.text))
        return ready.status_code == 200

    wait_until(is_back)
    assert seen <= {(503, True), (200, False)}
    wait_until(lambda: requests.get(health, timeout=10).status_code == 200)
    # Its metrics went with it: the new one begins at 0.
    assert sending.server.metric("sent_responses", model="sending") == 0
    assert sending.post("/generate", b'{"N": 1}').status_code == 200
