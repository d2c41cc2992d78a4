"""A worker that is killed costs exactly the requests that it held, wherever it is then, and says so at once."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
import requests
from fragile_models import Fragile, error, many, outputs, results, write_fragile, write_fragile_stream
from process_facts import is_alive
from python_models import write_echo
from raw_http import infer
from waiting import wait_until

BATCHES = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000 }"


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module):
    """All models on one server: a killed worker must harm no other."""
    repository = tmp_path_factory.mktemp("models")
    folders = [write_fragile(repository), write_fragile(repository, "caller"), write_fragile_stream(repository)]
    folders += [write_fragile(repository, "batching", BATCHES), write_fragile(repository, "two", instances=2)]
    write_echo(repository)
    server = serve_for_module(repository, "--worker-stop-timeout-secs=5")
    return {folder.name: Fragile(server, folder) for folder in folders}


@pytest.fixture
def fragile(models) -> Fragile:
    return fresh(models["fragile"])


@pytest.fixture
def caller(models) -> Fragile:
    return fresh(models["caller"])


@pytest.fixture
def stream(models) -> Fragile:
    return fresh(models["stream"])


def fresh(model: Fragile) -> Fragile:
    """Return a model without notes of earlier tests, whose worker is there and has proved good."""
    for path in model.folder.iterdir():
        if path.is_file() and path.suffix != ".pbtxt":
            path.unlink()
    wait_until(model.is_ready)
    return model


def kill(model: Fragile, instance: int = 0) -> int:
    """Kill a worker, as the kernel would for lack of memory; return its number."""
    pid = model.worker(instance)
    os.kill(pid, signal.SIGKILL)
    # While the kernel still tears it down, what is sent to it is lost, and nobody can know.
    wait_until(lambda: has_let_go(pid))
    return pid


def has_let_go(pid: int) -> bool:
    """Return whether a killed process has closed its files, which it does with its last thread."""
    try:
        return not is_alive(pid) and psutil.Process(pid).num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def killed(name: str, pid: int) -> str:
    return f"the worker process of model '{name}' ({name}_0_0), pid {pid}, was killed by SIGKILL"


def test_a_kill_while_a_batch_runs_fails_its_request_and_no_other(models, fragile):
    with many(3) as pool:
        held = pool.submit(fragile.ask, 1, do="hold", tag="a")
        fragile.wait_note("a.begun")
        others = [pool.submit(fragile.ask, 2), pool.submit(fragile.ask, 3)]
        wait_until(lambda: fragile.server.metric("nv_inference_pending_request_count", model="fragile") == 2)
        pid = kill(fragile)
        [lost] = results([held])
        assert (lost.status_code, error(lost)) == (503, killed("fragile", pid))
        # What it hadn't begun waits for the next worker.
        assert [outputs(answer) for answer in results(others)] == [[4], [6]]
    assert fragile.answers()
    wait_until(fragile.is_at_rest)


def test_a_kill_of_a_batch_fails_each_of_its_requests(models):
    batching = fresh(models["batching"])
    with many(6) as pool:
        first = pool.submit(batching.ask, 1, do="hold", tag="a")
        batching.wait_note("a.begun")
        others = [pool.submit(batching.ask, value, do="hold", tag="b") for value in (1, 2, 3, 4)]
        wait_until(lambda: batching.server.metric("nv_inference_pending_request_count", model="batching") == 4)
        batching.put("a.go")
        assert outputs(first.result(10)) == [2]
        batching.wait_note("b.begun")
        late = pool.submit(batching.ask, 5)
        pid = kill(batching)
        assert [error(answer) for answer in results(others)] == [killed("batching", pid)] * 4
        assert outputs(late.result(10)) == [10]


def test_a_kill_before_the_gather_costs_nothing(models, fragile):
    """The request comes when the worker is dead already, whether or not the server has seen it."""
    for _ in range(5):
        kill(fragile)
        answer = fragile.ask(3)
        assert outputs(answer) == [6]


def test_a_kill_while_idle_makes_the_model_unready_until_the_next_worker(models, fragile):
    fragile.put("hold_initialize")
    pid = kill(fragile)
    wait_until(lambda: not fragile.is_ready())
    text = requests.get(f"{fragile.server.url}/v2/models/fragile/ready", timeout=5).text
    assert killed("fragile", pid) in text
    # The others still are.
    assert models["caller"].is_ready()
    (fragile.folder / "hold_initialize").unlink()
    wait_until(fragile.is_ready)
    assert fragile.answers()


def test_a_request_waits_for_a_worker_that_soon_comes(fragile):
    fragile.put("hold_initialize")
    kill(fragile)
    wait_until(lambda: not fragile.is_ready())
    with many(1) as pool:
        waiting = pool.submit(fragile.ask, 4)
        wait_until(lambda: fragile.server.metric("nv_inference_pending_request_count", model="fragile") == 1)
        (fragile.folder / "hold_initialize").unlink()
        assert outputs(waiting.result(10)) == [8]


def test_a_kill_during_initialize_of_a_restart_is_one_more_death(fragile):
    fragile.put("hold_initialize")
    (fragile.folder / "initializing").unlink(missing_ok=True)
    first = kill(fragile)
    fragile.wait_note("initializing")
    second = kill(fragile)
    assert second != first
    wait_until(lambda: f"pid {second}, was killed by SIGKILL" in not_ready(fragile))
    (fragile.folder / "hold_initialize").unlink()
    wait_until(fragile.is_ready)
    assert fragile.answers()


def not_ready(model: Fragile) -> str:
    return requests.get(f"{model.server.url}/v2/models/{model.name}/ready", timeout=5).text


def test_while_the_next_start_is_far_off_requests_are_refused_with_the_reason(tmp_path, serve):
    folder = write_fragile(tmp_path)
    server = serve(tmp_path, "--worker-restart-delay-secs=20")
    model = Fragile(server, folder)
    pid = kill(model)
    wait_until(lambda: not model.is_ready())
    for _ in range(2):
        answer = model.ask(1)
        assert (answer.status_code, error(answer)) == (503, killed_text_of(answer, pid))
    assert server.stop() == 0
    assert not is_alive(pid)


def killed_text_of(answer: requests.Response, pid: int) -> str:
    """Return the text of a refusal, which holds the model and the signal."""
    text = error(answer)
    assert killed("fragile", pid) in text
    return text


def test_a_kill_right_after_the_result_was_sent_takes_no_answer_back(models, fragile):
    """The worker kills itself from a thread as soon as it waits for work again."""
    for value in range(5):
        deaths = fragile.restarts()
        assert outputs(fragile.ask(value, do="die_when_idle")) == [2 * value]
        wait_until(lambda deaths=deaths: fragile.restarts() == deaths + 1)
        assert fragile.answers(7)


def test_of_many_short_requests_only_the_one_that_ends_the_worker_is_lost(fragile, connect):
    """Batches this short are sent several at a time, and their results too."""
    clients = [connect(fragile.server) for _ in range(16)]

    def ask(killer: int | None) -> list[int]:
        for index, client in enumerate(clients):
            client.send(infer("fragile", [index], parameters={"do": "die"} if index == killer else {}))
        return [client.response()[0] for client in clients]

    for killer in (8, 0, 15):
        for _ in range(20):
            assert ask(None) == [200] * 16
        deaths = fragile.restarts()
        assert ask(killer) == [503 if index == killer else 200 for index in range(16)]
        assert fragile.restarts() == deaths + 1


def test_a_kill_between_two_responses_ends_the_stream_with_an_error(stream):
    with many(2) as pool:
        held = pool.submit(stream.stream, 5, count=3, hold="a")
        stream.wait_note("a.begun")
        pid = kill(stream)
        first, last = held.result(10)
    assert first["Y"] == 5
    assert last["error"] == killed("stream", pid)
    assert [event["Y"] for event in stream.stream(1, count=3)] == [1, 2, 3]
    wait_until(stream.is_at_rest)


def test_a_kill_of_the_model_that_is_called_is_an_error_that_the_caller_sees(caller, fragile):
    with many(2) as pool:
        calling = pool.submit(caller.ask, 1, do="call_and_survive", model="fragile", its_do="hold", its_tag="n")
        fragile.wait_note("n.begun")
        pid = kill(fragile)
        assert outputs(calling.result(10)) == [-1]
    assert killed("fragile", pid) in (caller.note("caught") or "")
    assert caller.answers()
    assert fragile.answers()


def test_a_kill_of_the_caller_cancels_what_it_called(caller, fragile):
    with many(2) as pool:
        calling = pool.submit(caller.ask, 1, do="call", model="fragile", its_do="hold", its_tag="n")
        fragile.wait_note("n.begun")
        pid = kill(caller)
        assert error(calling.result(10)) == killed("caller", pid)
    fragile.put("n.go")
    assert caller.answers()
    assert fragile.answers()
    wait_until(caller.is_at_rest)
    wait_until(fragile.is_at_rest)


def test_with_two_instances_the_other_serves_on_and_the_model_stays_ready(models):
    two = fresh(models["two"])
    two.put("hold_initialize")
    kill(two, 1)
    for value in range(10):
        assert two.answers(value)
        assert two.is_ready()
    (two.folder / "hold_initialize").unlink()
    two.worker(1)


def test_deaths_are_counted_by_their_reason(fragile):
    before = fragile.restarts()
    kill(fragile)
    wait_until(lambda: fragile.restarts() == before + 1)
    assert fragile.server.metric("naiad_worker_restarts_total", model="fragile", reason="signal") >= 1
