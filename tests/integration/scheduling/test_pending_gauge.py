"""The gauge of waiting requests tells how many wait, and is 0 again whichever way they end; so is that of the running ones."""

from __future__ import annotations

import pytest
from asking import Asker
from raw_http import Connection, infer, post
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

POLICY = """dynamic_batching { default_queue_policy {
    default_timeout_microseconds: 30000000 allow_timeout_override: true max_queue_size: 3
} }"""


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = [
        ScriptedModel(repository, "never_asked"),
        ScriptedModel(repository, "one_by_one", "dynamic_batching { }", 1),
        ScriptedModel(repository, "limited", POLICY, 1, fail_on="13"),
        ScriptedModel(repository, "wrong", returns="a_row_too_few"),
    ]
    server = serve_for_module(repository, environment=ENVIRONMENT)
    return {model.name: Asker(server, model) for model in made}


def test_it_is_there_and_0_before_the_first_request(models):
    assert models["never_asked"].pending() == 0
    assert models["never_asked"].metric("naiad_running_requests") == 0


def test_it_follows_the_queue_and_doesnt_count_what_runs(models):
    asker = models["one_by_one"]
    occupied = asker.occupy(0)
    assert (asker.pending(), asker.metric("naiad_running_requests")) == (0, 1)
    waiting = asker.queue(*range(1, 20))
    assert asker.pending() == 19
    asker.model.hold(10)
    asker.model.release(0)
    wait_until(lambda: asker.model.ran(10))
    assert asker.pending() == 9
    asker.model.release(10)
    assert [asked.answer()[0] for asked in [occupied, *waiting]] == [200] * 20
    assert (asker.pending(), asker.metric("naiad_running_requests")) == (0, 0)


def test_every_kind_of_end_gives_its_place_back(models):
    asker = models["limited"]
    occupied = asker.occupy(20)
    hangs_up, expires, fails = *asker.queue(21), *asker.queue(22, timeout=400_000), *asker.queue(13)
    assert asker.ask(24).answer()[0] == 503
    assert asker.pending() == 3
    with Connection(asker.server.host_port) as client:
        assert client.send(infer("limited", [1, 2], [2])).response()[0] == 400
        assert client.send(post("/v2/models/limited/infer", b"{")).response()[0] == 400
    assert asker.pending() == 3
    hangs_up.hang_up()
    wait_until(lambda: asker.pending() == 2)
    assert expires.answer()[0] == 503
    assert asker.pending() == 1
    asker.model.release()
    assert fails.answer()[0] == 500
    assert occupied.answer() == (200, [20])
    wait_until(lambda: asker.metric("naiad_running_requests") == 0)
    assert asker.pending() == 0


def test_it_is_0_after_a_client_hung_up_on_its_running_request(models):
    asker = models["limited"]
    asker.occupy(30).hang_up()
    wait_until(lambda: asker.metric("nv_inference_request_failure", reason="CANCELED") > 0)
    # The execution itself goes on: its instance isn't free before it ends.
    assert (asker.pending(), asker.metric("naiad_running_requests")) == (0, 1)
    asker.model.release()
    asker.wait_idle()


def test_it_is_0_after_outputs_that_cant_be_sent(models):
    asker = models["wrong"]
    assert [asker.ask(value).answer()[0] for value in (1, 2)] == [500, 500]
    assert (asker.pending(), asker.metric("naiad_running_requests")) == (0, 0)
