"""A client that hangs up frees queue and model at once; one that only closed its own direction still gets its answer."""

from __future__ import annotations

import socket
import struct

import pytest
from asking import Asker
from raw_http import Connection, infer, post
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

SCHEDULERS = {"plain": "", "batching": "dynamic_batching { }", "ordered": "dynamic_batching { preserve_ordering: true }"}
ROUTES = ["infer", "generate", "generate_stream"]


def request(model: str, route: str, value: float) -> bytes:
    if route == "infer":
        return infer(model, [value])
    return post(f"/v2/models/{model}/{route}", b'{"X": [%g]}' % value)


def close(client: Connection) -> None:
    client.close()


def reset(client: Connection) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = {name: ScriptedModel(repository, name, more, 1) for name, more in SCHEDULERS.items()}
    server = serve_for_module(repository, environment=ENVIRONMENT)
    return {name: Asker(server, model) for name, model in made.items()}


@pytest.fixture(params=list(SCHEDULERS))
def asker(models, request) -> Asker:
    return models[request.param]


@pytest.fixture
def numbers(asker):
    """Values that the model hasn't seen yet."""
    seen = [value for values in asker.model.executions() for value in values]
    return lambda count: [max(seen, default=0) + 100 + index for index in range(count)]


def cancelled(asker: Asker) -> float:
    return asker.metric("nv_inference_request_failure", reason="CANCELED")


@pytest.mark.parametrize("leave", [close, reset])
@pytest.mark.parametrize("route", ROUTES)
def test_requests_of_clients_that_hung_up_never_run_and_free_the_queue_at_once(asker, numbers, route, leave):
    before = cancelled(asker)
    running, *queued = numbers(10)
    asker.model.hold(running)
    first = Connection(asker.server.host_port).send(request(asker.model.name, route, running))
    wait_until(lambda: asker.model.ran(running))
    clients = [first] + [Connection(asker.server.host_port).send(request(asker.model.name, route, value)) for value in queued]
    wait_until(lambda: asker.pending() == 9)
    for client in clients:
        leave(client)
    wait_until(lambda: asker.pending() == 0, 1)
    assert cancelled(asker) == before + 10
    asker.model.release()
    asker.wait_idle()
    assert not any(asker.model.ran(value) for value in queued)


def test_who_waits_behind_clients_that_hung_up_waits_for_the_running_one_only(asker, numbers):
    running, *queued, last = numbers(6)
    clients = [asker.occupy(running), *asker.queue(*queued)]
    waiting = asker.queue(last)[0]
    for client in clients:
        client.hang_up()
    wait_until(lambda: asker.pending() == 1)
    asker.model.release()
    assert waiting.answer() == (200, [last])
    assert asker.model.executions()[-2:] == [[running], [last]]


@pytest.mark.parametrize("route", ROUTES)
def test_a_half_closed_client_gets_its_answer(asker, numbers, connect, route):
    """It is probed with an interim response meanwhile, which every client skips."""
    before = cancelled(asker)
    (value,) = numbers(1)
    asker.model.hold(value)
    client = connect(asker.server).send(request(asker.model.name, route, value))
    client.socket.shutdown(socket.SHUT_WR)
    wait_until(client.has_data_nowait, what="the probe")
    asker.model.release()
    status, _, body = client.response()
    assert (status, f"{value:g}".encode() in body) == (200, True)
    assert client.is_at_end()
    assert cancelled(asker) == before


def test_a_half_closed_client_gets_all_its_pipelined_answers(asker, numbers, connect):
    values = numbers(3)
    asker.model.hold(values[0])
    client = connect(asker.server).send(b"".join(infer(asker.model.name, [value]) for value in values))
    client.socket.shutdown(socket.SHUT_WR)
    asker.model.release()
    assert [f"{value:g}".encode() in client.response()[2] for value in values] == [True] * 3
    assert client.is_at_end()


def test_a_client_that_hangs_up_after_its_half_close_is_cancelled(asker, numbers):
    before = cancelled(asker)
    (value,) = numbers(1)
    asked = asker.occupy(value)
    asked.connection.socket.shutdown(socket.SHUT_WR)
    asked.hang_up()
    wait_until(lambda: cancelled(asker) == before + 1, 1.5)
    asker.model.release()
    asker.wait_idle()


def test_requests_pipelined_behind_a_cancelled_one_are_dropped_with_it(asker, numbers):
    before = cancelled(asker)
    values = numbers(3)
    asker.model.hold(values[0])
    client = Connection(asker.server.host_port).send(b"".join(infer(asker.model.name, [value]) for value in values))
    wait_until(lambda: asker.model.ran(values[0]))
    client.close()
    wait_until(lambda: cancelled(asker) == before + 1)
    asker.model.release()
    asker.wait_idle()
    assert not asker.model.ran(values[1])
    assert asker.ask(values[2]).answer() == (200, [values[2]])


def test_a_client_that_hangs_up_in_the_middle_of_its_request_asks_nothing(asker, numbers):
    (value,) = numbers(1)
    whole = infer(asker.model.name, [value])
    for end in (1, whole.index(b"\r\n\r\n"), len(whole) - 1):
        Connection(asker.server.host_port).send(whole[:end]).close()
    assert asker.ask(value + 50).answer() == (200, [value + 50])
    assert not asker.model.ran(value)
