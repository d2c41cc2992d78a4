"""Large JSON is read and written by a process of its own: others are answered meanwhile, and nothing is lost with it."""

import gzip
import json
import os
import select
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import requests
from model_folders import identity
from raw_http import Connection, post
from waiting import wait_until

COUNT = 200_000


@pytest.fixture
def server(tmp_path, serve):
    identity(tmp_path, "echo")
    identity(tmp_path, "text", datatype="STRING")
    return serve(tmp_path)


def body(count: int = COUNT, **more) -> bytes:
    item = {"name": "X", "shape": [1, count], "datatype": "FP32", "data": [float(index) for index in range(count)]}
    return json.dumps({"inputs": [item], **more}).encode()


def infer(server, data: bytes, **headers: str) -> requests.Response:
    return requests.post(f"{server.url}/v2/models/echo/infer", data=data, headers=headers, timeout=15)


def helpers(server) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


def test_numbers_arrive_and_come_back_whole(server):
    answer = infer(server, body(id="7"))
    assert answer.status_code == 200
    document = answer.json()
    assert document["id"] == "7"
    assert document["outputs"][0]["shape"] == [1, COUNT]
    assert document["outputs"][0]["data"] == [float(index) for index in range(COUNT)]
    assert len(helpers(server)) == 1


def test_binary_outputs_of_large_json_inputs_are_bytes(server):
    answer = infer(server, body(outputs=[{"name": "Y", "parameters": {"binary_data": True}}]))
    tensors = answer.content[int(answer.headers["Inference-Header-Content-Length"]) :]
    np.testing.assert_array_equal(np.frombuffer(tensors, np.float32), np.arange(COUNT, dtype=np.float32))


def test_a_compressed_body_and_a_compressed_answer(server):
    answer = infer(server, gzip.compress(body(), 1), **{"Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(answer.json()["outputs"][0]["data"]) == COUNT


def test_what_is_wrong_with_large_json_is_said_as_with_small(server):
    padding = " " * 2_000_000
    small = '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[1,"a"]}]}'
    assert infer(server, (small + padding).encode()).json() == infer(server, small.encode()).json()
    assert infer(server, ("{" + padding).encode()).status_code == 400


def test_others_are_answered_while_large_json_is_read(server):
    """Read on the loop, this body would let one or two of the others through until its own answer."""
    infer(server, body())
    with Connection(server.host_port) as busy, Connection(server.host_port) as other:
        busy.send(post("/v2/models/echo/infer", body(2_000_000)))
        answered = 0
        while not select.select([busy.socket], [], [], 0)[0]:
            assert other.send(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").response()[0] == 200
            answered += 1
        assert busy.response()[0] == 200
    assert answered > 20


def test_a_helper_that_dies_fails_its_request_only_and_is_replaced(server):
    infer(server, body())
    (helper,) = helpers(server)
    os.kill(helper.pid, signal.SIGKILL)
    wait_until(lambda: helper.status() == psutil.STATUS_ZOMBIE)
    failed = infer(server, body())
    assert failed.status_code == 500
    assert "helper process" in failed.json()["error"]
    assert infer(server, body()).status_code == 200
    assert [child.pid for child in helpers(server)] != [helper.pid]


def test_a_client_that_hangs_up_meanwhile_is_forgotten(server):
    client = Connection(server.host_port).send(post("/v2/models/echo/infer", body()))
    client.close()
    assert infer(server, body()).status_code == 200


def test_the_helper_ends_with_the_server(server):
    infer(server, body())
    (helper,) = helpers(server)
    assert server.stop() == 0
    assert not Path(f"/proc/{helper.pid}").exists()


def test_the_helper_ends_when_the_server_is_killed(server):
    infer(server, body())
    (helper,) = helpers(server)
    server.stop(signal.SIGKILL)
    assert psutil.wait_procs([helper], timeout=5)[1] == []
