"""HTTP and gRPC at Unix domain sockets: served, given back at the end, and never taken from another."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from model_folders import identity
from server_process import failed_start
from waiting import wait_until

from naiad.errors import InferenceServerError
from naiad.frontends.sockets import bind

FREE_PORTS = ("--grpc-port=0", "--metrics-port=0")


class UnixHttp(http.client.HTTPConnection):
    """http.client over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))

    def infer(self, count: int = 3) -> list[float]:
        tensor = {"name": "X", "shape": [1, count], "datatype": "FP32", "data": [1.5] * count}
        self.request("POST", "/v2/models/echo/infer", json.dumps({"inputs": [tensor]}))
        return json.loads(self.getresponse().read())["outputs"][0]["data"]


def grpc_infer(path: str) -> list[float]:
    tensor = triton.InferInput("X", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.full((1, 3), 2.5, np.float32))
    with triton.InferenceServerClient(path) as client:
        return client.infer("echo", [tensor]).as_numpy("Y").tolist()[0]


@pytest.fixture
def server(tmp_path, serve):
    identity(tmp_path / "models")
    return serve(tmp_path / "models", f"--http-address=unix:{tmp_path}/http.sock", f"--grpc-address=unix:{tmp_path}/grpc.sock")


def test_both_frontends_answer_there(server, tmp_path):
    connection = UnixHttp(tmp_path / "http.sock")
    assert connection.infer() == [1.5] * 3
    assert connection.infer(300_000) == [1.5] * 300_000
    connection.close()
    assert grpc_infer(f"unix:{tmp_path}/grpc.sock") == [2.5] * 3
    assert grpc_infer(f"unix://{tmp_path}/grpc.sock") == [2.5] * 3
    assert (server.http, server.grpc) == (f"unix:{tmp_path}/http.sock", f"unix:{tmp_path}/grpc.sock")
    assert server.metrics.startswith("127.0.0.1:")
    assert any(f"curl --unix-socket {tmp_path}/http.sock http://localhost/v2" in line for line in server.output)


def test_the_files_are_gone_after_the_stop(server, tmp_path):
    assert server.stop() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models"]


def test_a_client_that_hangs_up_while_it_waits_costs_nothing(tmp_path, serve):
    identity(tmp_path / "models", delay_ms=300)
    server = serve(tmp_path / "models", f"--http-address=unix:{tmp_path}/http.sock")
    body = json.dumps({"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})
    head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    half, gone = (socket.socket(socket.AF_UNIX) for _ in range(2))
    for sock in (half, gone):
        sock.settimeout(10)
        sock.connect(f"{tmp_path}/http.sock")
        sock.sendall((head + body).encode())
    gone.close()
    # Who only ends its own direction still gets the answer.
    half.shutdown(socket.SHUT_WR)
    received = b""
    while data := half.recv(4096):
        received += data
    half.close()
    assert b'"data":[1.0]' in received
    assert "Traceback" not in server.log()
    assert server.stop() == 0


def test_what_a_killed_server_left_is_replaced(server, tmp_path, serve):
    server.process.send_signal(signal.SIGKILL)
    assert server.wait() == -signal.SIGKILL
    assert (tmp_path / "http.sock").exists()
    serve(tmp_path / "models", f"--http-address=unix:{tmp_path}/http.sock")
    connection = UnixHttp(tmp_path / "http.sock")
    assert connection.infer() == [1.5] * 3
    connection.close()


def test_a_socket_in_use_is_refused_and_stays(server, tmp_path):
    text = failed_start(tmp_path / "models", f"--http-address=unix:{tmp_path}/http.sock", *FREE_PORTS)
    assert f"Socket 'unix:{tmp_path}/http.sock' already in use" in text
    connection = UnixHttp(tmp_path / "http.sock")
    assert connection.infer() == [1.5] * 3
    connection.close()


def test_another_file_is_never_removed(tmp_path):
    identity(tmp_path / "models")
    (tmp_path / "notes.txt").write_text("mine")
    text = failed_start(tmp_path / "models", f"--http-address=unix:{tmp_path}/notes.txt", *FREE_PORTS)
    assert "there is a file of that name that is no socket" in text
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_path_through_a_file_is_refused(tmp_path):
    identity(tmp_path / "models")
    (tmp_path / "file").write_text("")
    text = failed_start(tmp_path / "models", f"--http-address=unix:{tmp_path}/file/x.sock", *FREE_PORTS)
    assert f"can't listen at 'unix:{tmp_path}/file/x.sock': Not a directory" in text


def test_a_start_that_fails_leaves_no_file(tmp_path):
    identity(tmp_path / "models")
    (tmp_path / "keys").write_text("short")
    address = f"--http-address=unix:{tmp_path}/http.sock"
    assert "line 1: a key must be" in failed_start(tmp_path / "models", address, f"--api-key-file={tmp_path}/keys", *FREE_PORTS)
    assert not (tmp_path / "http.sock").exists()


def test_the_file_of_a_server_that_took_over_stays(tmp_path):
    first = bind(f"unix:{tmp_path}/x.sock", 0)
    (tmp_path / "x.sock").unlink()
    second = bind(f"unix:{tmp_path}/x.sock", 0)
    first.close()
    assert (tmp_path / "x.sock").exists()
    second.close()
    second.close()
    assert not (tmp_path / "x.sock").exists()


@pytest.mark.parametrize("address", ["unix:", "unix://host/path", "unix:/" + "x" * 107, "unix:a\0b"])
def test_an_address_that_names_no_path_is_refused(address):
    with pytest.raises(InferenceServerError, match="path of the socket"):
        bind(address, 0)


def test_the_stop_doesn_t_wait_for_idle_connections(server, tmp_path):
    connection = UnixHttp(tmp_path / "http.sock")
    connection.connect()
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10
    wait_until(lambda: not (tmp_path / "http.sock").exists())
    connection.close()
