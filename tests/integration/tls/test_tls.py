"""TLS for HTTP and gRPC with one set of flags, and with Triton's for gRPC alone, to a real server."""

from __future__ import annotations

import signal
import socket
import ssl
import time
import warnings
from collections.abc import Callable

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from certificates import Signed, signed
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key
from model_folders import identity
from server_process import failed_start
from waiting import wait_until

from naiad.frontends.sockets import bind


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Signed:
    return signed(tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture(scope="module")
def client_files(tmp_path_factory) -> Signed:
    return signed(tmp_path_factory.mktemp("tls"), "client", identity="client")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    identity(folder)
    return folder


@pytest.fixture(scope="module")
def server(serve_for_module, repository, files):
    return serve_for_module(repository, *pair(files))


@pytest.fixture(scope="module")
def mutual(serve_for_module, repository, files, client_files):
    return serve_for_module(repository, *pair(files), f"--tls-client-ca={client_files.ca}")


def pair(files: Signed) -> list[str]:
    return [f"--tls-cert={files.cert}", f"--tls-key={files.key}"]


def grpc_pair(files: Signed) -> list[str]:
    return [f"--grpc-server-cert={files.cert}", f"--grpc-server-key={files.key}"]


def grpc_client(address: str, files: Signed, client: Signed | None = None) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(
        address,
        ssl=True,
        root_certificates=str(files.ca),
        private_key=str(client.key) if client else None,
        certificate_chain=str(client.cert) if client else None,
    )


def is_echoed(module, client, count: int = 3) -> bool:
    tensor = module.InferInput("X", [1, count], "FP32")
    data = np.arange(count, dtype=np.float32).reshape(1, count)
    tensor.set_data_from_numpy(data)
    return bool((client.infer("echo", [tensor]).as_numpy("Y") == data).all())


def is_http_live(server, files: Signed, **more) -> bool:
    # A session of its own: each asks for a new connection.
    return requests.get(f"https://{server.http}/v2/health/live", verify=str(files.ca), timeout=10, **more).status_code == 200


def context(files: Signed, *protocols: str, client: Signed | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files.ca)
    made.set_alpn_protocols(protocols)
    if client is not None:
        made.load_cert_chain(client.cert, client.key)
    return made


def connected(address: str, made: ssl.SSLContext) -> ssl.SSLSocket:
    host, port = address.rsplit(":", 1)
    return made.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname="localhost")


def subject_key(address: str, files: Signed) -> bytes:
    with connected(address, context(files)) as sock:
        return sock.getpeercert(binary_form=True)


def test_both_frontends_are_served_with_one_certificate(server, files):
    with grpc_client(server.grpc, files) as client:
        assert is_echoed(triton, client)
        assert client.is_server_ready()
    with triton_http.InferenceServerClient(server.http, ssl=True, ssl_options={"ca_certs": str(files.ca)}) as client:
        assert is_echoed(triton_http, client)
    assert is_http_live(server, files)
    assert any(line.startswith("HTTP     https://127.0.0.1:") for line in server.output)


def test_large_tensors_pass_both_ways(server, files):
    body = {"inputs": [{"name": "X", "shape": [1, 300_000], "datatype": "FP32", "data": [1.5] * 300_000}]}
    reply = requests.post(f"https://{server.http}/v2/models/echo/infer", json=body, verify=str(files.ca), timeout=20)
    assert reply.json()["outputs"][0]["data"] == [1.5] * 300_000
    with grpc_client(server.grpc, files) as client:
        assert is_echoed(triton, client, 3_000_000)


def test_metrics_stay_without_tls(server):
    assert "nv_" in requests.get(f"http://{server.metrics}/metrics", timeout=10).text


@pytest.mark.parametrize(("port", "protocol"), [("http", "http/1.1"), ("grpc", "h2")])
def test_the_protocol_of_a_port_is_agreed_upon(server, files, port, protocol):
    with connected(getattr(server, port), context(files, "h2", "http/1.1")) as sock:
        assert sock.selected_alpn_protocol() == protocol


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_versions_before_1_2_are_refused(server, files, port):
    old = context(files)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        connected(getattr(server, port), old)


def test_the_oldest_version_is_the_operators_choice(serve, repository, files):
    server = serve(repository, *pair(files), "--tls-min-version=1.3")
    assert is_http_live(server, files)
    old = context(files)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        connected(server.http, old)


def test_mutual_tls_lets_in_those_with_a_certificate(mutual, files, client_files):
    with grpc_client(mutual.grpc, files, client_files) as client:
        assert is_echoed(triton, client)
    assert is_http_live(mutual, files, cert=(str(client_files.cert), str(client_files.key)))


def test_mutual_tls_keeps_out_those_without(mutual, files):
    with pytest.raises(requests.exceptions.ConnectionError):
        is_http_live(mutual, files)
    assert not is_grpc_open(mutual.grpc, files, None)


def test_mutual_tls_keeps_out_certificates_of_other_authorities(mutual, files, tmp_path):
    stranger = signed(tmp_path, "stranger")
    with pytest.raises(requests.exceptions.ConnectionError):
        is_http_live(mutual, files, cert=(str(stranger.cert), str(stranger.key)))
    assert not is_grpc_open(mutual.grpc, files, stranger)


def is_grpc_open(address: str, files: Signed, client: Signed | None) -> bool:
    credentials = grpc.ssl_channel_credentials(
        files.ca.read_bytes(), client and client.key.read_bytes(), client and client.cert.read_bytes()
    )
    with grpc.secure_channel(address, credentials) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        code = live.future(b"", timeout=10).code()
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
        return code is grpc.StatusCode.OK


def test_triton_s_flags_are_for_grpc_alone(serve, repository, files, client_files):
    given = [*grpc_pair(files), f"--grpc-root-cert={client_files.ca}"]
    server = serve(repository, "--grpc-use-ssl=true", *given)
    assert is_grpc_open(server.grpc, files, None)
    assert requests.get(f"http://{server.http}/v2/health/live", timeout=10).status_code == 200
    server = serve(repository, "--grpc-use-ssl-mutual=true", *given)
    assert is_grpc_open(server.grpc, files, client_files)
    assert not is_grpc_open(server.grpc, files, None)


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_a_renewed_certificate_is_used_after_sighup(serve, repository, tmp_path, port):
    files, renewed = signed(tmp_path, "server"), signed(tmp_path, "renewed")
    server = serve(repository, *pair(files))
    before = subject_key(server.http, files)
    assert before == subject_key(server.grpc, files)
    with grpc_client(server.grpc, files) as client:
        assert is_echoed(triton, client)
        files.overwrite(renewed)
        assert subject_key(getattr(server, port), files) == before
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count("was read again") == 2)
        assert subject_key(getattr(server, port), renewed) != before
        # Connections that are open stay.
        assert is_echoed(triton, client)


def test_clients_of_an_authority_that_is_no_longer_trusted_are_kept_out_after_sighup(serve, repository, tmp_path):
    files, first, second = (signed(tmp_path, name) for name in ("server", "first", "second"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(first.ca.read_bytes())
    server = serve(repository, *pair(files), f"--tls-client-ca={trusted}")
    assert is_grpc_open(server.grpc, files, first)
    trusted.write_bytes(second.ca.read_bytes())
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("was read again") == 2)
    assert is_grpc_open(server.grpc, files, second)
    assert not is_grpc_open(server.grpc, files, first)


def test_a_bad_renewal_changes_nothing(serve, repository, tmp_path):
    files = signed(tmp_path, "server")
    server = serve(repository, *pair(files))
    files.cert.write_text("no certificate")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("were not read again") == 2)
    assert is_http_live(server, files)
    assert server.stop() == 0


@pytest.mark.parametrize("port", ["http", "grpc"])
@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 600]
)
def test_what_is_no_tls_is_hung_up_on(server, files, port, sent):
    host, number = getattr(server, port).rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=10) as sock:
        sock.sendall(sent)
        assert read_to_end(sock)[:1] in (b"", b"\x15")
    assert is_http_live(server, files)
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_tls_on_a_port_without_is_hung_up_on(serve, repository, files, port):
    server = serve(repository)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connected(getattr(server, port), context(files))
    assert requests.get(f"{server.url}/v2/health/live", timeout=10).status_code == 200
    assert "Traceback" not in server.log()


def test_a_handshake_that_stops_disturbs_nobody(server, files):
    host, number = server.http.rsplit(":", 1)
    silent = [socket.create_connection((host, int(number)), timeout=10) for _ in range(20)]
    for sock in silent:
        sock.sendall(b"\x16\x03\x01")
    assert is_http_live(server, files)
    for sock in silent:
        sock.close()


def test_a_client_that_ends_its_direction_is_taken_as_gone(server, files):
    with connected(server.http, context(files)) as sock:
        sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1000) == b""
    assert is_http_live(server, files)


def test_the_stop_doesn_t_wait_for_idle_connections(serve, repository, files):
    server = serve(repository, *pair(files))
    with connected(server.http, context(files)), connected(server.grpc, context(files, "h2")):
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10


def test_certificate_and_key_may_be_in_one_file(serve, repository, files, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
    assert is_http_live(serve(repository, f"--tls-cert={both}"), files)


def encrypted(files: Signed, folder) -> str:
    path = folder / "encrypted.key"
    key = load_pem_private_key(files.key.read_bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    return str(path)


FREE_PORTS = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
BAD: list[tuple[Callable[[Signed, str], list[str]], str]] = [
    (lambda files, folder: [f"--tls-key={files.key}"], "--tls-key is given without --tls-cert"),
    (lambda files, folder: [f"--tls-client-ca={files.ca}"], "--tls-client-ca is given without --tls-cert"),
    (lambda files, folder: [f"--tls-cert={folder}/none.pem"], "none.pem' can't be read: No such file"),
    (lambda files, folder: [f"--tls-cert={files.cert}"], "are no certificate and its key"),
    (lambda files, folder: [f"--tls-cert={files.ca}", f"--tls-key={files.key}"], "are no certificate and its key"),
    (lambda files, folder: [*pair(files), f"--tls-client-ca={files.key}"], "has no certificates of authorities"),
    (lambda files, folder: [f"--tls-cert={files.cert}", f"--tls-key={encrypted(files, folder)}"], "is encrypted"),
    (lambda files, folder: ["--tls-min-version=1.1"], "--tls-min-version must be 1.2 or 1.3; it is '1.1'"),
    (lambda files, folder: ["--grpc-use-ssl=true"], "--grpc-use-ssl=true needs --grpc-server-cert"),
    (lambda files, folder: ["--grpc-use-ssl=1", f"--grpc-server-cert={files.cert}"], "true needs --grpc-server-key"),
    (lambda files, folder: ["--grpc-use-ssl-mutual=1", *grpc_pair(files)], "--grpc-use-ssl-mutual=true needs --grpc-root-cert"),
    (lambda files, folder: ["--grpc-use-ssl=true", "--one-port=true"], "--grpc-use-ssl is TLS for gRPC's own port"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "text"), BAD, ids=[text[:40] for _, text in BAD])
def test_files_and_flags_that_don_t_fit_are_refused_at_the_start(repository, files, tmp_path, flags, text):
    assert text in failed_start(repository, *flags(files, tmp_path), *FREE_PORTS)


def test_the_socket_says_its_url(files):
    bound = bind("0.0.0.0", 0)
    try:
        assert bound.url == f"http://localhost:{bound.address.rsplit(':', 1)[1]}"
    finally:
        bound.close()


def read_to_end(sock: socket.socket) -> bytes:
    received = b""
    try:
        while data := sock.recv(4096):
            received += data
    except ConnectionError:
        pass
    return received
