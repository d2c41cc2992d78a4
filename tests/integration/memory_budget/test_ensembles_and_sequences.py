"""Ensembles whose models don't fit into memory together, and sequences, whose model stays until they end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from controlled_models import http_ask
from ensembles import chain
from limited_memory import declared, evictions, resident
from model_folders import identity
from raw_http import Connection, infer
from waiting import wait_until

STEPS = ("b", "c", "d")


@pytest.mark.parametrize(("limit", "at_start"), [("250MB", ["b", "c"]), ("150MB", ["b"])])
def test_an_ensemble_runs_through_models_that_do_not_fit_together(tmp_path, serve, limit, at_start):
    for name in STEPS:
        identity(tmp_path / "models", name, more=declared())
    # First in order, so that the start must not wait for it before it loads what it is made of.
    chain(tmp_path / "models", "a", STEPS)
    server = serve(tmp_path / "models", f"--model-memory-limit={limit}")
    assert resident(server, *STEPS) == at_start
    ask = http_ask(server, "a")
    assert [ask() for _ in range(3)] == [1] * 3
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: http_ask(server, "a")(), range(12))) == [1] * 12
    assert len(resident(server, *STEPS)) == len(at_start)


def test_a_model_with_an_open_sequence_stays_until_it_ends(tmp_path, serve):
    more = "sequence_batching { max_sequence_idle_microseconds: 20000000 }"
    identity(tmp_path / "models", "a", more=more + declared())
    identity(tmp_path / "models", "b", more=declared())
    server = serve(tmp_path / "models", "--model-memory-limit=150MB")

    def step(**parameters) -> int:
        with Connection(server.host_port) as connection:
            connection.send(infer("a", [1], [1, 1], parameters={"sequence_id": 7, **parameters}))
            return connection.response()[0]

    assert step(sequence_start=True) == 200
    with Connection(server.host_port) as waiting:
        waiting.send(infer("b", [1], [1, 1]))
        wait_until(lambda: server.metric("nv_inference_pending_request_count", model="b") == 1)
        assert step() == 200
        assert (resident(server, "a", "b"), evictions(server, "a")) == (["a"], [0])
        assert step(sequence_end=True) == 200
        assert waiting.response()[0] == 200
    assert resident(server, "a", "b") == ["b"]
    assert (step(sequence_start=True, sequence_end=True), resident(server, "a", "b")) == (200, ["a"])


def test_a_sequence_that_nobody_goes_on_with_gives_its_room_up(tmp_path, serve):
    more = "sequence_batching { max_sequence_idle_microseconds: 100000 }"
    identity(tmp_path / "models", "a", more=more + declared())
    identity(tmp_path / "models", "b", more=declared())
    server = serve(tmp_path / "models", "--model-memory-limit=150MB")
    with Connection(server.host_port) as connection:
        connection.send(infer("a", [1], [1, 1], parameters={"sequence_id": 7, "sequence_start": True}))
        assert connection.response()[0] == 200
    assert (http_ask(server, "b")(), resident(server, "a", "b")) == (1, ["b"])
