"""What a model's parameters say about deaths, time and memory of its workers holds, and each limit is named in the answer."""

from __future__ import annotations

import psutil
import pytest
from fragile_models import Fragile, error, many, outputs, results, write_fragile
from process_facts import is_alive
from waiting import wait_until

BATCHES = "dynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: [ 3 ] }"
MEMORY_LIMIT_MB = 150
LEAK_BYTES = 4 << 20
LIMIT_TEXT = "was killed: execute didn't return within its limit of 0.3 seconds"


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("models")
    folders = [
        write_fragile(repository, "retrying", BATCHES, retry_on_worker_death="1"),
        write_fragile(repository, "limited", execution_timeout_ms="300"),
        write_fragile(repository, "overriding", execution_timeout_ms="20000", allow_execution_timeout_override="1"),
        write_fragile(repository, "strict", execution_timeout_ms="20000"),
        write_fragile(repository, "leaking", worker_memory_limit_mb=str(MEMORY_LIMIT_MB)),
    ]
    server = serve_for_module(repository, "--worker-stop-timeout-secs=5")
    return {folder.name: Fragile(server, folder) for folder in folders}


def poisons(model: Fragile) -> float:
    return model.server.metric("naiad_poison_requests_total", model=model.name)


def test_a_request_that_kills_once_is_answered_by_its_retry(models):
    model = models["retrying"]
    before = poisons(model)
    assert outputs(model.ask(4, do="die_once", tag="once")) == [8]
    assert poisons(model) == before
    assert model.answers()


def test_a_request_that_kills_always_is_refused_as_poison_and_counted(models):
    model = models["retrying"]
    before, deaths = poisons(model), model.restarts()
    answer = model.ask(4, do="die")
    assert answer.status_code == 503
    assert error(answer).startswith(
        "the request is refused, since a worker ended each of the two times that it ran: the worker"
    )
    assert "model 'retrying' (retrying_0_0), pid " in error(answer)
    assert error(answer).endswith("was killed by SIGKILL")
    assert poisons(model) == before + 1
    assert model.restarts() == deaths + 2
    assert model.answers()


def test_those_who_ran_in_a_batch_with_poison_are_answered(models):
    model = models["retrying"]
    before = poisons(model)
    with many(3) as pool:
        asked = [pool.submit(model.ask, 1), pool.submit(model.ask, 2, do="die"), pool.submit(model.ask, 3)]
        good, bad, also_good = results(asked)
    assert (outputs(good), bad.status_code, outputs(also_good)) == ([2], 503, [6])
    assert poisons(model) == before + 1


@pytest.mark.parametrize("way", ["hang", "spin"])
def test_a_request_that_hangs_ends_with_the_limit_in_its_text(models, way):
    model = models["limited"]
    answer = model.ask(1, do=way)
    assert (answer.status_code, LIMIT_TEXT in error(answer)) == (503, True)
    assert model.server.metric("naiad_worker_restarts_total", model="limited", reason="hang") >= 1
    assert model.answers()


def test_a_limit_is_of_one_execute_and_not_of_the_queue_before_it(models):
    model = models["limited"]
    with many(4) as pool:
        hanging = pool.submit(model.ask, 1, do="hang")
        wait_until(lambda: model.server.metric("naiad_running_requests", model="limited") == 1)
        queued = [pool.submit(model.ask, value) for value in (1, 2, 3)]
        assert hanging.result(10).status_code == 503
        assert [outputs(answer) for answer in results(queued)] == [[2], [4], [6]]


def test_a_request_may_shorten_the_limit_where_the_model_allows_it(models):
    answer = models["overriding"].ask(1, do="hang", execution_timeout_ms=300)
    assert (answer.status_code, LIMIT_TEXT in error(answer)) == (503, True)
    assert models["overriding"].answers()


def test_a_request_can_not_shorten_it_otherwise(models):
    model = models["strict"]
    with many(1) as pool:
        held = pool.submit(model.ask, 1, do="hold", tag="s", execution_timeout_ms=1)
        model.wait_note("s.begun")
        # A limit of a millisecond would have ended it while this was answered.
        assert not held.done()
        assert model.server.metric("naiad_running_requests", model="strict") == 1
        model.put("s.go")
        assert outputs(held.result(10)) == [2]
    assert model.restarts() == 0


def test_a_model_that_leaks_is_replaced_between_batches_and_no_request_fails(models):
    model = models["leaking"]
    first = model.worker()
    answered = 0

    def leak() -> bool:
        nonlocal answered
        assert outputs(model.ask(2, do="leak", bytes=LEAK_BYTES)) == [4]
        answered += 1
        return not is_alive(first)

    wait_until(leak, what="another worker")
    assert answered * LEAK_BYTES > (MEMORY_LIMIT_MB - 100) << 20
    assert model.server.metric("naiad_worker_restarts_total", model="leaking", reason="memory_limit") == 1
    assert model.answers()


def test_a_model_that_leaks_is_replaced_under_load_that_never_pauses(models):
    model = models["leaking"]
    wait_until(model.is_ready)
    first = model.worker()
    stop = []

    def ask_on() -> int:
        count = 0
        while not stop:
            assert outputs(model.ask(2, do="leak", bytes=LEAK_BYTES // 4)) == [4]
            count += 1
        return count

    with many(4) as pool:
        asking = [pool.submit(ask_on) for _ in range(4)]
        try:
            wait_until(lambda: not is_alive(first), what="another worker")
        finally:
            stop.append(True)
        assert all(future.result(10) for future in asking)
    assert model.answers()


def test_memory_of_the_workers_is_on_the_metrics_page(models):
    model = models["leaking"]
    wait_until(model.is_ready)
    held = model.server.metric("naiad_worker_memory_bytes", model="leaking")
    assert held == pytest.approx(psutil.Process(model.worker()).memory_info().rss, rel=0.2)
