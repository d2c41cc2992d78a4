"""Queue deadlines fire on time, and a queue's limit is exact, whatever the model is doing meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import Asked, Asker
from queue_policies import LATE_S, TIMEOUT_S, policy
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = [
        ScriptedModel(repository, "one", policy("REJECT"), 1),
        ScriptedModel(repository, "four", policy("REJECT"), 4),
        ScriptedModel(repository, "delay", policy("DELAY"), 1),
        ScriptedModel(repository, "no_override", "dynamic_batching { default_queue_policy { } }", 1),
    ]
    server = serve_for_module(repository, environment=ENVIRONMENT)
    return {model.name: Asker(server, model) for model in made}


def answers(asked: list[Asked]) -> list[tuple[int, str, float]]:
    """Wait for all at once, so that each is timed for itself."""
    with ThreadPoolExecutor(len(asked)) as threads:
        return list(threads.map(Asked.answer_after, asked))


@pytest.mark.parametrize("name", ["one", "four"])
def test_two_wait_until_their_deadline_and_the_others_are_refused_at_once(models, name):
    asker = models[name]
    occupied = asker.occupy(0)
    ended = answers([asker.ask(value) for value in (1, 2, 3, 4)])
    assert {status for status, _, _ in ended} == {503}
    refused = [after_s for _, text, after_s in ended if "Exceeds maximum queue size" in text]
    expired = [after_s for _, text, after_s in ended if "Request timeout expired" in text]
    assert (len(refused), len(expired)) == (2, 2)
    assert max(refused) < LATE_S
    assert min(expired) >= TIMEOUT_S - 0.005
    assert max(expired) < TIMEOUT_S + LATE_S
    # The model is busy still: nobody waited for it.
    assert asker.metric("naiad_running_requests") == 1
    assert asker.pending() == 0
    asker.model.release()
    assert occupied.answer() == (200, [0])
    assert asker.model.executions() == [[0]]
    assert asker.metric("nv_inference_request_failure", reason="REJECTED") == 2
    assert asker.metric("naiad_requests_refused_total", reason="queue_full") == 2


def test_an_override_only_shortens(models):
    asker = models["four"]
    occupied = asker.occupy(10)
    shorter, longer = answers([asker.ask(11, timeout=100_000), asker.ask(12, timeout=900_000)])
    assert 0.095 <= shorter[2] < 0.1 + LATE_S
    assert TIMEOUT_S - 0.005 <= longer[2] < TIMEOUT_S + LATE_S
    assert shorter[2] < longer[2]
    asker.model.release()
    assert occupied.answer() == (200, [10])
    assert not asker.model.ran(11)
    assert not asker.model.ran(12)


def test_without_a_timeout_of_its_own_a_queue_takes_no_override(models):
    asker = models["no_override"]
    occupied = asker.occupy(0)
    waiting = asker.queue(1, timeout=1000)
    late = asker.queue(2)
    assert asker.pending() == 2
    asker.model.release()
    assert [asked.answer()[0] for asked in [occupied, *waiting, *late]] == [200] * 3


def test_the_place_of_an_expired_request_is_free_at_once(models):
    asker = models["one"]
    occupied = asker.occupy(20)
    first = asker.queue(21, timeout=50_000)[0]
    second = asker.queue(22)[0]
    assert first.answer()[0] == 503
    third = asker.ask(23)
    wait_until(lambda: asker.pending() == 2)
    asker.model.release()
    assert [asked.answer() for asked in (occupied, second, third)] == [(200, [20]), (200, [22]), (200, [23])]


def test_the_place_of_a_client_that_hung_up_is_free_at_once(models):
    asker = models["four"]
    occupied = asker.occupy(30)
    gone, stays = asker.queue(31, 32, timeout=0)
    gone.hang_up()
    wait_until(lambda: asker.pending() == 1)
    asker.model.release()
    assert [occupied.answer(), stays.answer()] == [(200, [30]), (200, [32])]
    assert not asker.model.ran(31)


def test_delay_refuses_nothing_for_its_age_and_serves_the_late_after_those_in_time(models):
    asker = models["delay"]
    rejected = asker.metric("nv_inference_request_failure", reason="REJECTED")
    occupied = asker.occupy(0)
    late = asker.queue(1, timeout=1000)[0]
    in_time = asker.queue(2)[0]
    asker.model.release()
    assert [asked.answer() for asked in (occupied, late, in_time)] == [(200, [0]), (200, [1]), (200, [2])]
    assert asker.model.executions() == [[0], [2], [1]]
    assert asker.metric("nv_inference_request_failure", reason="REJECTED") == rejected
