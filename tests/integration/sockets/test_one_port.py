"""--one-port: HTTP and gRPC behind one address, told apart by a connection's first bytes."""

from __future__ import annotations

import socket
import ssl

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from certificates import signed
from model_folders import identity
from waiting import wait_until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    identity(folder)
    return folder


@pytest.fixture(scope="module")
def server(serve_for_module, repository):
    return serve_for_module(repository, "--one-port=true", "--http-header-timeout-secs=2")


def infer(module, client) -> list[float]:
    tensor = module.InferInput("X", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.full((1, 3), 2.5, np.float32))
    return client.infer("echo", [tensor]).as_numpy("Y").tolist()[0]


def is_live(server) -> bool:
    return requests.get(f"{server.url}/v2/health/live", timeout=10).status_code == 200


def test_both_are_served_at_one_address(server):
    assert server.grpc == server.http
    with triton.InferenceServerClient(server.grpc) as client:
        assert infer(triton, client) == [2.5] * 3
    with triton_http.InferenceServerClient(server.http) as client:
        assert infer(triton_http, client) == [2.5] * 3


def test_with_tls_too(serve, repository, tmp_path):
    files = signed(tmp_path, "server")
    server = serve(repository, "--one-port=true", f"--tls-cert={files.cert}", f"--tls-key={files.key}")
    with triton.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(files.ca)) as client:
        assert infer(triton, client) == [2.5] * 3
    assert requests.get(f"https://{server.http}/v2/health/live", verify=str(files.ca), timeout=10).status_code == 200
    # Browsers and curl offer HTTP/2 first, but what they are to speak here is HTTP/1.1.
    offers_both = ssl.create_default_context(cafile=files.ca)
    offers_both.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("localhost", int(server.http.rsplit(":", 1)[1])), timeout=10)
    with offers_both.wrap_socket(plain, server_hostname="localhost") as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"


def test_at_a_unix_socket_too(serve, repository, tmp_path):
    server = serve(repository, "--one-port=true", f"--http-address=unix:{tmp_path}/naiad.sock")
    with triton.InferenceServerClient(server.grpc) as client:
        assert infer(triton, client) == [2.5] * 3


def test_first_bytes_one_at_a_time(server):
    with socket.create_connection(server.host_port, timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE + SETTINGS:
            sock.sendall(bytes([byte]))
        # The server's own SETTINGS frame.
        assert sock.recv(9)[3] == 4
    with socket.create_connection(server.host_port, timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"PUT /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert sock.recv(1000).startswith(b"HTTP/1.1 405")


@pytest.mark.parametrize(
    "sent", [b"\x00\x01garbage\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n", b"PRI *\r\n\r\n", b"\x16\x03\x01\x00\xff" * 9]
)
def test_what_is_neither_is_refused_as_http(server, sent):
    with socket.create_connection(server.host_port, timeout=10) as sock:
        sock.sendall(sent)
        assert sock.recv(1000).startswith(b"HTTP/1.1 4")
    assert is_live(server)
    assert "Traceback" not in server.log()


def test_a_silent_client_is_let_go(serve, repository):
    server = serve(repository, "--one-port=true", "--http-keep-alive-timeout-secs=0.3")
    with socket.create_connection(server.host_port, timeout=10) as silent, socket.create_connection(server.host_port) as half:
        half.sendall(PREFACE[:5])
        assert silent.recv(1) == b""
        half.settimeout(10)
        assert half.recv(1) == b""
    assert is_live(server)


def test_silent_clients_are_bounded(serve, repository):
    server = serve(repository, "--one-port=true", "--http-max-connections=5")
    silent = [socket.create_connection(server.host_port, timeout=10) for _ in range(5)]
    with socket.create_connection(server.host_port, timeout=10) as too_many:
        assert too_many.recv(1) == b""
    for sock in silent:
        sock.close()
    wait_until(lambda: is_live_now(server))


def is_live_now(server) -> bool:
    try:
        return is_live(server)
    except requests.ConnectionError:
        return False


def test_the_stop_ends_both_and_silent_clients(serve, repository):
    server = serve(repository, "--one-port=true")
    with socket.create_connection(server.host_port, timeout=10), grpc.insecure_channel(server.grpc) as channel:
        assert channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=10) == b"\x08\x01"
        assert is_live(server)
        assert server.stop() == 0
