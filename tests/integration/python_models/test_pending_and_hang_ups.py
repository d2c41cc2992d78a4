"""Clients of Python models that hang up free queue and model at once; the gauges are 0 whichever way requests end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from python_models import IO, Config, source, write_python_model
from python_models.batched import ask, tensor
from python_models.repositories import ANY_ROW, ONE_NUMBER
from raw_http import Connection, post
from server_process import ServerProcess
from waiting import wait_until

INPUTS = (IO("X"), IO("MS", "INT32", "1"))
LIMITS = """dynamic_batching { default_queue_policy {
    default_timeout_microseconds: 30000000 allow_timeout_override: true max_queue_size: 3
} }"""
ROUTES = ("infer", "generate", "generate_stream")
MODELS = ("slow", "polling", "limited", "repeat", "patient")


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "slow", source("slow"), Config(INPUTS))
    (write_python_model(repository, "polling", source("slow"), Config(INPUTS)) / "polls").touch()
    write_python_model(repository, "limited", source("slow"), Config(INPUTS, max_batch_size=1, more=LIMITS))
    for name in ("repeat", "patient"):
        write_python_model(repository, name, source(name), Config(ANY_ROW, ONE_NUMBER, 0, is_decoupled=True))
    return repository


@pytest.fixture(scope="module")
def server(repository, serve_for_module) -> ServerProcess:
    return serve_for_module(repository)


@pytest.fixture(autouse=True)
def gauges_are_0(server):
    for model in MODELS:
        assert gauges(server, model) == (0, 0)
    yield
    for model in MODELS:
        wait_until(lambda model=model: gauges(server, model) == (0, 0), what=f"gauges of {model} at 0")


def gauges(server: ServerProcess, model: str) -> tuple[float, float]:
    """Return how many requests wait and how many run."""
    return tuple(server.metric(name, model=model) for name in ("nv_inference_pending_request_count", "naiad_running_requests"))


def pending(server: ServerProcess, model: str) -> float:
    return gauges(server, model)[0]


def cancelled(server: ServerProcess, model: str) -> float:
    return server.metric("nv_inference_request_failure", model=model, reason="CANCELED")


def inputs(value: float, ms: int) -> list[dict[str, object]]:
    return [tensor("X", "FP32", (1, 1), value), tensor("MS", "INT32", (1, 1), ms)]


def begin(server: ServerProcess, model: str, value: float, ms: int, route: str = "infer", **parameters: int) -> Connection:
    body = {"inputs": inputs(value, ms), "parameters": parameters} if route == "infer" else {"X": [value], "MS": ms}
    return Connection(server.host_port).send(post(f"/v2/models/{model}/{route}", json.dumps(body).encode()))


def notes(repository: Path, model: str, file: str = "ran.txt") -> list[str]:
    path = repository / model / file
    return path.read_text().split() if path.exists() else []


def is_of_round(repository: Path, first: int) -> bool:
    return any(first <= int(value) < first + 100 for value in notes(repository, "polling"))


@pytest.mark.parametrize("route", ROUTES)
def test_requests_that_wait_are_dropped_with_their_clients_and_never_run(server, repository, route):
    first = 100 * (1 + ROUTES.index(route))
    before = cancelled(server, "polling")
    clients = [begin(server, "polling", first + number, 10_000, route) for number in range(10)]
    wait_until(lambda: gauges(server, "polling") == (9, 1), what="one runs and nine wait")
    wait_until(lambda: is_of_round(repository, first), what="the one that runs says so")
    running = clients[int(notes(repository, "polling")[-1]) - first]
    # That one goes last: once it is cancelled the next one starts, if its client is still there.
    for client in clients:
        if client is not running:
            client.close()
    wait_until(lambda: pending(server, "polling") == 0, what="none waits")
    running.close()
    assert ask(server, "polling", *inputs(first + 50, 1)) == (200, {"Y": [first + 50]})
    assert cancelled(server, "polling") == before + 10
    ran = [int(value) for value in notes(repository, "polling") if first <= int(value) < first + 100]
    assert ran[-1] == first + 50
    assert len(ran) == 2
    assert notes(repository, "polling", "cancelled.txt")[-1] == str(ran[0])


def test_a_model_that_does_not_look_finishes_the_running_request_only(server, repository):
    clients = [begin(server, "slow", number, 300) for number in range(1, 6)]
    wait_until(lambda: gauges(server, "slow") == (4, 1), what="one runs and four wait")
    for client in clients:
        client.close()
    assert ask(server, "slow", *inputs(9, 1)) == (200, {"Y": [9]})
    assert len(notes(repository, "slow")) == 2


def test_a_decoupled_request_is_told_within_a_second_that_its_client_is_gone(server, repository):
    client = Connection(server.host_port).send(post("/v2/models/patient/generate_stream", b'{"X": [1]}'))
    wait_until(lambda: gauges(server, "patient")[1] == 1, what="it runs")
    client.close()
    wait_until(lambda: notes(repository, "patient", "cancelled"), what="the note")


def test_the_pending_gauge_follows_the_queue(server):
    with ThreadPoolExecutor(20) as threads:
        answers = [threads.submit(ask, server, "slow", *inputs(number, 30)) for number in range(20)]
        wait_until(lambda: pending(server, "slow") > 10, what="many wait")
        wait_until(lambda: 0 < pending(server, "slow") <= 5, what="few wait")
        assert [answer.result()[0] for answer in answers] == [200] * 20


def test_every_kind_of_end_gives_its_place_back(server):
    running = begin(server, "limited", 1, 1500)
    wait_until(lambda: gauges(server, "limited") == (0, 1), what="it runs")
    late = begin(server, "limited", 2, 1, timeout=200_000)
    gone, waiting = begin(server, "limited", 3, 1), begin(server, "limited", 4, 1)
    wait_until(lambda: pending(server, "limited") == 3, what="three wait")
    assert ask(server, "limited", *inputs(5, 1))[0] == 503
    assert ask(server, "limited", tensor("X", "FP32", (1, 1, 1), 1), inputs(1, 1)[1])[0] == 400
    gone.close()
    assert late.response()[0] == 503
    assert running.response()[0] == 200
    assert waiting.response()[0] == 200
    for client in (running, late, waiting):
        client.close()


@pytest.mark.parametrize("count", [0, 1, 5])
def test_decoupled_requests_of_any_number_of_responses_give_their_place_back(server, count):
    with Connection(server.host_port) as client:
        body = json.dumps({"X": [0] if count == 0 else [count]}).encode()
        status, _, text = client.send(post("/v2/models/repeat/generate_stream", body)).response()
    assert (status, text.count(b"data: ")) == (200, count)


def test_the_gauges_are_there_before_the_first_request(tmp_path, serve):
    write_python_model(tmp_path / "models", "slow", source("slow"), Config(INPUTS))
    assert gauges(serve(tmp_path / "models"), "slow") == (0, 0)
