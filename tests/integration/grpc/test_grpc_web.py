"""gRPC-Web on a real server: both forms, streams, errors, limits, access, and clients that leave or don't read."""

from __future__ import annotations

import base64
import gzip
import threading
import time

import grpc_web
import numpy as np
import pytest
from grpc_models import echo_request, noted, rep_request, request, slow_request, write_grpc_models
from grpc_web import BINARY, FORMS, TEXT, body, call, frame
from process_facts import facts
from raw_http import Connection
from server_process import ServerProcess
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_until

INFER, STREAM = "ModelInfer", "ModelStreamInfer"
WATCH = "/grpc.health.v1.Health/Watch"
ORIGIN = "https://page.example"
NOT_FOUND_TEXT = "Request for unknown model: 'nobody' is not found"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "slow", "poll", "rep")


@pytest.fixture(scope="module")
def server(repository, serve_for_module):
    return serve_for_module(
        repository,
        f"--http-cors-origin={ORIGIN}",
        "--grpc-max-message-size=100000000",
        "--grpc-restricted-protocol=logging:admin=secret",
    )


@pytest.fixture
def ask(server, connect):
    """Make a call on a connection of its own and return its whole answer."""

    def make(rpc: str, *messages: pb.ModelInferRequest, form: str = BINARY, lines: tuple[str, ...] = ()) -> grpc_web.Answer:
        frames = [frame(message.SerializeToString()) for message in messages]
        return sent(connect(server), call(rpc, body(form, *frames), form, *lines), form)

    return make


def sent(connection: Connection, data: bytes, form: str = BINARY) -> grpc_web.Answer:
    status, headers, content = connection.send(data).response()
    assert (status, headers["content-type"]) == (200, form)
    return grpc_web.answer(form, content)


def outputs(answer: grpc_web.Answer) -> list[list[float]]:
    """Return the numbers of each response of a stream that has some."""
    found = [pb.ModelStreamInferResponse.FromString(message) for message in answer.messages]
    assert [response.error_message for response in found] == [""] * len(found)
    responses = [response.infer_response for response in found]
    return [np.frombuffer(r.raw_output_contents[0], np.int32).tolist() for r in responses if r.raw_output_contents]


def next_chunk(connection: Connection) -> bytes:
    """Return the next chunk of a response whose head has been read."""
    chunk = connection.exactly(int(connection.until(b"\r\n"), 16))
    connection.exactly(2)
    return chunk


def check_serves(ask) -> None:
    assert ask(INFER, echo_request(1)).status == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 1_000_000])
def test_an_inference_is_answered_in_both_forms(ask, form, count):
    values = np.arange(count, dtype=np.float32)
    found = ask(INFER, request("echo", "mine", X=values.reshape(1, -1)), form=form)
    response = pb.ModelInferResponse.FromString(found.messages[0])
    assert (found.status, len(found.messages), response.id) == (0, 1, "mine")
    assert response.raw_output_contents == [values.tobytes()]


@pytest.mark.parametrize("form", FORMS)
def test_all_requests_of_a_stream_are_answered(ask, form):
    found = ask(STREAM, rep_request(3), rep_request(0), rep_request(2), form=form)
    assert found.status == 0
    assert sorted(map(tuple, outputs(found))) == [(0,), (0,), (1,), (1,), (2,)]
    finals = [pb.ModelStreamInferResponse.FromString(message).infer_response.parameters for message in found.messages]
    assert sum(parameters["triton_final_response"].bool_param for parameters in finals) == 3


def test_a_connection_is_kept_for_further_calls_of_any_kind(server, connect):
    connection = connect(server)
    for form in (*FORMS, *FORMS):
        data = call("ServerLive", body(form, frame(b"")), form)
        assert sent(connection, data, form).messages == [b"\x08\x01"]
    assert connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n").response()[0] == 200


def test_an_error_is_in_the_trailers_and_on_a_stream_in_its_place(ask):
    found = ask(INFER, request("nobody"))
    assert (found.status, found.messages) == (5, [])
    assert found.text.startswith(NOT_FOUND_TEXT)
    streamed = ask(STREAM, request("nobody"), echo_request(1))
    errors = [pb.ModelStreamInferResponse.FromString(message).error_message for message in streamed.messages]
    assert (streamed.status, len(errors), errors[1]) == (0, 2, "")
    assert errors[0].startswith(NOT_FOUND_TEXT)


@pytest.mark.parametrize(
    ("form", "content", "status", "words"),
    [
        (BINARY, b"", 13, "none came"),
        (BINARY, b"garbage", 13, "flag byte"),
        (BINARY, frame(b"\xff\xff"), 3, ""),
        (BINARY, frame(b"abcdefgh")[:-3], 13, "ended within a message"),
        (BINARY, frame(b"abc") + b"\x00", 3, ""),
        (BINARY, b"\x00\xff\xff\xff\xff" + bytes(1000), 8, "larger than the limit of 100000000"),
        (BINARY, b"\x80\x00\x00\x00\x00", 13, "flag byte"),
        (BINARY, frame(b"x", 1), 13, "grpc-encoding"),
        (BINARY, frame(echo_request(1).SerializeToString()) * 2, 13, "a second one came"),
        (TEXT, b"not base64!!", 3, "not base64"),
        (TEXT, base64.b64encode(frame(b""))[:-1], 3, "left over"),
        (TEXT, b"====", 3, "padding"),
    ],
)
def test_a_bad_body_ends_its_call_alone(ask, server, connect, form, content, status, words):
    connection = connect(server)
    found = sent(connection, call(INFER, content, form), form)
    assert found.status == status
    assert words in found.text
    assert sent(connection, call("ServerLive", body(form, frame(b"")), form), form).status == 0
    check_serves(ask)


def test_a_packed_message_is_unpacked(server, connect):
    packed = frame(gzip.compress(echo_request(*range(5000)).SerializeToString()), 1)
    found = sent(connect(server), call(INFER, packed, BINARY, "grpc-encoding: gzip"))
    assert (found.status, len(found.messages)) == (0, 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"GET /inference.GRPCInferenceService/ModelInfer HTTP/1.1\r\nHost: t\r\nContent-Type: application/grpc-web\r\n\r\n",
            404,
        ),
        (call(INFER, b"", "application/json"), 404),
        (call(INFER, b"", "application/grpc"), 404),
        (call(INFER, b"", "application/grpc-web+json"), 404),
        (call("/v2/nowhere", b""), 404),
        (call("/v2/models/echo/unload", b""), 404),
    ],
)
def test_what_is_no_call_is_answered_as_without_grpc_web(server, connect, data, expected):
    status, headers, _ = connect(server).send(data).response()
    assert (status, headers["content-type"]) == (expected, "application/json")


def test_an_rpc_that_does_not_exist_is_unimplemented(ask):
    assert ask("/no.Such/Rpc").status == 12
    assert ask("NoSuch").status == 12


def test_a_deadline_ends_the_call_and_what_runs_for_it(ask, repository):
    before = noted(repository, "poll", "cancelled.txt")
    found = ask(INFER, slow_request(30_000, "poll"), lines=("grpc-timeout: 200m",))
    assert (found.status, found.messages) == (4, [])
    wait_until(lambda: noted(repository, "poll", "cancelled.txt") > before)


@pytest.mark.parametrize("has_answer", [False, True])
def test_a_client_that_leaves_cancels_what_runs_for_it(repository, server, has_answer):
    """Also one whose stream has begun, so that nothing but the next response would tell that it is gone."""
    ran, cancelled = noted(repository, "poll"), noted(repository, "poll", "cancelled.txt")
    with Connection(server.host_port) as connection:
        requests = [echo_request(1)] * has_answer + [slow_request(30_000, "poll")]
        connection.send(call(STREAM, body(BINARY, *(frame(message.SerializeToString()) for message in requests))))
        if has_answer:
            connection.until(b"\r\n\r\n")
            assert next_chunk(connection)[0] == 0
        wait_until(lambda: noted(repository, "poll") > ran)
    wait_until(lambda: noted(repository, "poll", "cancelled.txt") > cancelled)


@pytest.mark.parametrize("form", FORMS)
def test_responses_come_while_the_body_is_still_sent(server, connect, form):
    connection = connect(server)
    content = body(form, frame(echo_request(1).SerializeToString()))
    head = call(STREAM, b"", form).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    connection.send(head + b"%x\r\n%b\r\n" % (len(content), content))
    connection.until(b"\r\n\r\n")
    first = next_chunk(connection)
    connection.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))
    rest = b""
    while chunk := next_chunk(connection):
        rest += chunk
    assert len(grpc_web.answer(form, first + rest).messages) == 2


def test_a_client_that_does_not_read_costs_no_memory_and_gets_everything_later(server, connect):
    connection, count, size = connect(server), 100, 1_000_000
    before = facts(server.pid).resident_bytes
    connection.send(call(STREAM, frame(rep_request(count, size).SerializeToString())))
    connection.until(b"\r\n\r\n")
    for _ in range(100):
        assert sent(connect(server), call(INFER, frame(echo_request(1).SerializeToString()))).status == 0
    assert facts(server.pid).resident_bytes - before < 150e6
    received, last = 0, b""
    while chunk := next_chunk(connection):
        received, last = received + len(chunk), (last + chunk)[-60:]
    assert received > count * size * 4
    assert b"grpc-status: 0\r\n" in last


def test_restricted_protocols_are_restricted_here_too(ask):
    assert ask("LogSettings").status == 14
    assert ask("LogSettings", lines=("triton-grpc-protocol-admin: wrong",)).status == 14
    allowed = ask("LogSettings", lines=("triton-grpc-protocol-admin: secret",))
    assert allowed.status == 13  # there is no message; the next one has it
    assert "none came" in allowed.text


def test_what_is_restricted_on_the_http_port_is_no_way_around_it(tmp_path, serve, connect):
    write_grpc_models(tmp_path, "echo")
    server = serve(tmp_path, "--http-restricted-api=inference,model-repository:admin-key=s3cret")
    data = frame(echo_request(1).SerializeToString())
    refused = sent(connect(server), call(INFER, data))
    assert (refused.status, refused.text) == (14, "This API is restricted, expecting header 'admin-key'")
    assert sent(connect(server), call("RepositoryIndex", frame(b""))).status == 14
    assert sent(connect(server), call("ServerLive", frame(b""))).status == 0
    assert sent(connect(server), call(INFER, data, BINARY, "admin-key: s3cret")).status == 0


def test_an_api_key_is_needed_here_too(tmp_path, serve, connect):
    write_grpc_models(tmp_path, "echo")
    server = serve(tmp_path, "--api-key=first-key-0123456789", f"--http-cors-origin={ORIGIN}")
    data = frame(echo_request(1).SerializeToString())
    assert sent(connect(server), call(INFER, data)).status == 16
    assert sent(connect(server), call("/no.Such/Rpc", data)).status == 16
    assert sent(connect(server), call(INFER, data, BINARY, "Authorization: Bearer first-key-0123456789")).status == 0
    check_preflight(connect(server))


def check_preflight(connection: Connection) -> None:
    wanted = "content-type,x-grpc-web,x-user-agent,grpc-timeout,authorization"
    asked = f"Origin: {ORIGIN}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: {wanted}\r\n"
    line = f"OPTIONS {grpc_web.SERVICE}{INFER} HTTP/1.1\r\nHost: t\r\n{asked}\r\n"
    status, headers, _ = connection.send(line.encode()).response()
    assert status in (200, 204)
    assert headers["access-control-allow-origin"] == ORIGIN
    assert headers["access-control-allow-headers"] == wanted
    assert "POST" in headers["access-control-allow-methods"]


def test_pages_of_an_allowed_origin_may_call_and_read_the_status(server, connect):
    check_preflight(connect(server))
    data = call(INFER, frame(b"\xff\xff"), BINARY, f"Origin: {ORIGIN}")
    _, headers, _ = connect(server).send(data).response()
    assert headers["access-control-allow-origin"] == ORIGIN
    exposed = headers["access-control-expose-headers"].split(", ")
    assert {"grpc-status", "grpc-message"} <= set(exposed)


@pytest.mark.parametrize("flags", [("--grpc-web=false",), ("--allow-grpc=false",)])
def test_it_can_be_off(tmp_path, serve, connect, flags):
    write_grpc_models(tmp_path, "echo")
    server = serve(tmp_path, *flags)
    assert connect(server).send(call("ServerLive", frame(b""))).response()[0] == 404


@pytest.mark.parametrize("flags", [(), ("--one-port=true",)])
def test_a_stop_ends_streams_that_are_open_and_does_not_wait_for_them(tmp_path, flags):
    write_grpc_models(tmp_path, "echo")
    server = ServerProcess(tmp_path, *flags).wait_ready()
    with Connection(server.host_port) as watching, Connection(server.host_port) as sending:
        watching.send(call(WATCH, frame(b"")))
        sending.send(call(STREAM, b"", BINARY).replace(b"Content-Length: 0", b"Content-Length: 100"))
        sending.send(frame(echo_request(1).SerializeToString()))
        for connection in (watching, sending):
            connection.until(b"\r\n\r\n")
            assert next_chunk(connection)[0] == 0
        begun = time.monotonic()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        ends = [b"".join(iter(lambda connection=connection: next_chunk(connection), b"")) for connection in (watching, sending)]
        stopping.join()
        assert [b"grpc-status: 14\r\n" in end for end in ends] == [True, True]
        assert time.monotonic() - begun < 10
    assert server.process.returncode == 0
