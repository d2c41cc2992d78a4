"""API keys on a real server: Triton's clients, raw connections, refused bodies of every kind, renewal by SIGHUP."""

from __future__ import annotations

import json
import signal

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from http_models import write_everything
from raw_http import chunked, infer, post
from server_process import failed_start
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from waiting import wait_until

KEY, OTHER = "first-key-0123456789", "other-key-0123456789"
WITH_KEY = f"Authorization: Bearer {KEY}"
BEARER = {"Authorization": f"Bearer {KEY}"}
MISSING = 'Bearer realm="naiad"'
INVALID = 'Bearer realm="naiad", error="invalid_token"'
GENERATE = post("/v2/models/gen/generate", b'{"text_input":"a"}')
REQUESTS = {
    "infer": infer("echo", [1]),
    "infer-404": infer("nobody", [1]),
    "infer-400": post("/v2/models/echo/infer", b"{"),
    "generate": GENERATE,
    "stream": post("/v2/models/gen/generate_stream", b'{"text_input":"a"}'),
    "index": post("/v2/repository/index", b"{}"),
    "load": post("/v2/repository/models/echo/load", b"{}"),
    "statistics": b"GET /v2/models/stats HTTP/1.1\r\nHost: test\r\n\r\n",
    "docs": b"GET /docs HTTP/1.1\r\nHost: test\r\n\r\n",
    "unknown": b"GET /nowhere HTTP/1.1\r\nHost: test\r\n\r\n",
    "options": b"OPTIONS /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\n\r\n",
}


def with_lines(request: bytes, *lines: str) -> bytes:
    """Return the request with these lines first in its head."""
    first, _, rest = request.partition(b"\r\n")
    return b"\r\n".join([first, *(line.encode() for line in lines), rest])


def keyed(request: bytes, key: str = KEY) -> bytes:
    return with_lines(request, f"Authorization: Bearer {key}")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_everything(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(serve_for_module, models, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"# clients\nalice {KEY}\n{OTHER}\n")
    path.chmod(0o600)
    return serve_for_module(models, f"--api-key-file={path}", "--http-cors-origin=https://app.example")


@pytest.fixture(autouse=True)
def _no_key_is_logged(server):
    yield
    assert server.process.poll() is None
    assert not any(key in server.log() for key in (KEY, OTHER))
    assert "fault of the server" not in server.log()


def tensor(module):
    made = module.InferInput("X", [1, 3], "FP32")
    made.set_data_from_numpy(np.array([[1, 2, 3]], np.float32))
    return made


# --- Triton's clients


@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_tritons_client_infers_with_the_header_only(server, module):
    address = server.http if module is triton_http else server.grpc
    with module.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("echo")
        for _ in range(3):
            result = client.infer("echo", [tensor(module)], headers={"authorization": f"Bearer {KEY}"})
            assert result.as_numpy("Y").tolist() == [[1, 2, 3]]
            for headers in (None, {"authorization": "Bearer wrong-0123456789"}):
                with pytest.raises(InferenceServerException) as caught:
                    client.infer("echo", [tensor(module)], headers=headers)
                assert caught.value.status() == ("401" if module is triton_http else "StatusCode.UNAUTHENTICATED")
                assert "API key" in caught.value.message()
        with pytest.raises(InferenceServerException):
            client.get_server_metadata()
        assert client.get_model_repository_index(headers={"authorization": f"bearer {OTHER}"})


def test_a_stream_of_grpc_is_refused_as_a_whole(server):
    answers = []
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        # The head alone is refused; the client takes no request once it knows.
        client.start_stream(lambda result, error: answers.append(error or result))
        wait_until(lambda: answers)
        client.stop_stream()
        assert "UNAUTHENTICATED" in str(answers[0].status())
        answers.clear()
        client.start_stream(lambda result, error: answers.append(error or result), headers={"authorization": f"Bearer {KEY}"})
        client.async_stream_infer("echo", [tensor(triton_grpc)])
        wait_until(lambda: answers)
        assert answers[0].as_numpy("Y").tolist() == [[1, 2, 3]]


def unary(channel: grpc.Channel, path: str, metadata: tuple = ()) -> grpc.StatusCode:
    try:
        channel.unary_unary(path)(b"", metadata=metadata, timeout=10)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_health_of_grpc_is_open_and_all_else_guarded_what_does_not_exist_too(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=10).ready
        assert unary(channel, "/grpc.health.v1.Health/Check") is grpc.StatusCode.OK
        for path in ("/inference.GRPCInferenceService/RepositoryIndex", "/no.Service/Method"):
            assert unary(channel, path) is grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", f"Bearer {KEY}"),)
        assert unary(channel, "/no.Service/Method", metadata) is grpc.StatusCode.UNIMPLEMENTED
        for package in ("v1", "v1alpha"):
            reflect = channel.stream_stream(f"/grpc.reflection.{package}.ServerReflection/ServerReflectionInfo")
            with pytest.raises(grpc.RpcError) as caught:
                list(reflect(iter([b""]), timeout=10))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert len(list(reflect(iter([b"\x3a\x00"]), metadata=metadata, timeout=10))) == 1


# --- HTTP


@pytest.mark.parametrize("name", REQUESTS)
def test_a_connection_outlives_a_401_and_an_answer_with_a_key_is_the_usual_one(server, connect, name):
    connection = connect(server)
    for _ in range(2):
        status, headers, body = connection.send(REQUESTS[name]).response()
        assert (status, headers["www-authenticate"], headers.get("connection")) == (401, MISSING, None)
        assert (list(json.loads(body)), headers["content-type"]) == (["error"], "application/json")
        status, headers, body = connection.send(keyed(REQUESTS[name], "wrong-key-0123456789")).response()
        assert (status, headers["www-authenticate"], headers.get("connection")) == (401, INVALID, None)
        assert b"wrong-key" not in body
        status, headers, _ = connection.send(keyed(REQUESTS[name])).response()
        assert (status in (401, 403), "www-authenticate" in headers) == (False, False)


def test_health_of_http_and_metrics_are_open(server):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready"):
        assert requests.get(server.url + path, timeout=10).status_code == 200
    assert "nv_inference" in requests.get(f"http://{server.metrics}/metrics", timeout=10).text


def test_refused_and_allowed_requests_may_be_pipelined(server, connect):
    refused, allowed = infer("echo", [1]), keyed(infer("echo", [2]))
    app_refused, app_allowed = REQUESTS["index"], keyed(REQUESTS["index"])
    connection = connect(server).send((refused + allowed + app_refused + app_allowed) * 10)
    assert [connection.response()[0] for _ in range(40)] == [401, 200, 401, 200] * 10


def test_a_401_in_place_of_a_large_body_ends_the_connection_and_reaches_its_client(server, connect):
    for request in (post("/v2/models/echo/infer", b" " * (10 << 20)), chunked("/v2/models/echo/infer", b" " * 100_000)):
        connection = connect(server).send(request)
        status, headers, _ = connection.response()
        assert (status, headers["www-authenticate"], headers["connection"]) == (401, MISSING, "close")
        assert connection.is_at_end()


def test_a_401_comes_before_the_body(server, connect):
    heads = [
        post("/v2/models/echo/infer", b"", "Expect: 100-continue").replace(b"Content-Length: 0", b"Content-Length: 9"),
        b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v2/models/gen/generate_stream HTTP/1.1\r\nHost: test\r\nContent-Length: 100000000\r\n\r\n",
        b"POST /v2/repository/index HTTP/1.1\r\nHost: test\r\nContent-Length: 100000000\r\n\r\n",
    ]
    for head in heads:
        assert connect(server).send(head).response()[0] == 401


def test_a_large_body_for_the_app_is_dropped_and_the_connection_goes_on(server, connect):
    connection = connect(server).send_and_read_on(post("/v2/repository/index", b" " * (20 << 20)))
    assert connection.response()[0] == 401
    assert connection.send(keyed(REQUESTS["index"])).response()[0] == 200


def test_a_preflight_needs_no_key_and_a_401_may_be_read_by_the_page(server, connect):
    origin = "Origin: https://app.example"
    question = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
    connection = connect(server)
    head = connection.send(with_lines(REQUESTS["options"], origin, *question)).until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204")
    assert b"Access-Control-Allow-Headers: authorization" in head
    for request in (infer("echo", [1]), REQUESTS["index"]):
        status, headers, _ = connection.send(with_lines(request, origin)).response()
        assert (status, headers["access-control-allow-origin"]) == (401, "https://app.example")


def test_two_authorizations_are_refused(server, connect):
    for request in (infer("echo", [1]), REQUESTS["index"]):
        status, headers, body = connect(server).send(with_lines(request, WITH_KEY, WITH_KEY)).response()
        assert (status, headers["www-authenticate"]) == (401, INVALID)
        assert b"it may be there once" in body


# --- options


def test_what_is_open_is_the_operators_choice_and_restricted_apis_stay(serve, models):
    server = serve(
        models,
        f"--api-key={KEY}",
        "--api-key-open=metadata,docs,reflection",
        "--http-restricted-api=statistics,metadata:admin-key=s3cret",
        "--grpc-restricted-protocol=inference:admin-key=s3cret",
    )

    def status(path: str, **headers: str) -> int:
        return requests.get(server.url + path, headers=headers, timeout=10).status_code

    assert (status("/docs"), status("/v2/health/live"), status("/v2/health/live", **BEARER)) == (200, 401, 200)
    admin = {"admin-key": "s3cret"}
    assert (status("/v2"), status("/v2", **admin)) == (403, 200)
    statistics = "/v2/models/stats"
    assert [status(statistics, **more) for more in ({}, admin, BEARER, {**BEARER, **admin})] == [401, 401, 403, 200]
    metrics = f"http://{server.metrics}/metrics"
    refused = requests.get(metrics, timeout=10)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, MISSING)
    assert requests.get(metrics, headers=BEARER, timeout=10).status_code == 200
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        expected = {
            (): "UNAUTHENTICATED",
            ("authorization",): "UNAVAILABLE",
            ("triton-grpc-protocol-admin-key",): "UNAUTHENTICATED",
        }
        values = {"authorization": f"Bearer {KEY}", "triton-grpc-protocol-admin-key": "s3cret"}
        for names, code in expected.items():
            with pytest.raises(InferenceServerException) as caught:
                client.infer("echo", [tensor(triton_grpc)], headers={name: values[name] for name in names})
            assert code in caught.value.status()
        assert client.infer("echo", [tensor(triton_grpc)], headers=values).as_numpy("Y").tolist() == [[1, 2, 3]]
    assert "--api-key-file keeps the keys" in server.log()
    assert KEY not in server.log()


def test_keys_come_from_the_environment_when_the_flag_gives_none(serve, models):
    server = serve(models, environment={"NAIAD_API_KEY": f"{KEY} {OTHER}"})
    codes = [
        requests.get(f"{server.url}/v2", headers=headers, timeout=10).status_code
        for headers in ({}, BEARER, {"Authorization": f"Bearer {OTHER}"})
    ]
    assert codes == [401, 200, 200]


def test_sighup_renews_keys_also_for_heads_and_connections_that_are_known(serve, models, connect, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(KEY)
    server = serve(models, f"--api-key-file={path}")
    connection = connect(server)
    old, new = keyed(infer("echo", [1])), keyed(infer("echo", [1]), OTHER)
    assert [connection.send(old).response()[0] for _ in range(3)] == [200, 200, 200]
    with triton_grpc.InferenceServerClient(server.grpc) as client:

        def is_open(key: str) -> bool:
            try:
                return bool(client.infer("echo", [tensor(triton_grpc)], headers={"authorization": f"Bearer {key}"}))
            except InferenceServerException as error:
                if "UNAUTHENTICATED" not in error.status():
                    raise
                return False

        assert (is_open(KEY), is_open(OTHER)) == (True, False)
        path.write_text("too short")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the old ones stay in use" in server.log())
        assert (connection.send(old).response()[0], is_open(KEY)) == (200, True)
        path.write_text(OTHER)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "were read again" in server.log())
        assert [connection.send(request).response()[0] for request in (old, new, old)] == [401, 200, 401]
        assert (is_open(KEY), is_open(OTHER)) == (False, True)


def test_a_request_that_was_let_in_before_a_renewal_is_answered_and_the_next_is_not(serve, models, connect, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(KEY)
    server = serve(models, f"--api-key-file={path}")
    connection, request = connect(server), keyed(infer("echo", [1]))
    connection.send(request[:-5])
    assert requests.get(f"{server.url}/v2", headers=BEARER, timeout=10).status_code == 200
    path.write_text(OTHER)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "were read again" in server.log())
    assert connection.send(request[-5:]).response()[0] == 200
    assert [connection.send(request).response()[0] for _ in range(2)] == [401, 401]


def test_a_server_with_a_file_that_cant_be_used_does_not_start(models, tmp_path):
    path = tmp_path / "keys.txt"
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert f"'{path}' can't be read" in failed_start(models, f"--api-key-file={path}", *ports)
    path.write_text(f"a b {KEY}")
    said = failed_start(models, f"--api-key-file={path}", *ports)
    assert (f"'{path}', line 1" in said, KEY in said) == (True, False)
