"""What can't be loaded at a request, what fits no limit, and a server that stops while requests wait."""

from __future__ import annotations

import threading
import time

import pytest
import requests
from asking import Asker
from controlled_models import CONFIG, ValueModel, http_ask
from limited_memory import TWO_OF_THREE, declared, demand_loads, reason, resident, scripted_models, value_models
from scripted_models import ENVIRONMENT
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException
from waiting import wait_until

NAMES = ("a", "b", "c")
EXPLICIT = "--model-control-mode=explicit"


def test_a_failed_load_answers_all_who_wait_and_the_model_is_tried_again_after_a_pause(tmp_path, serve):
    models = value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE)
    models[2].break_version(1)
    ask = http_ask(server, "c")
    with pytest.raises(InferenceServerException, match="the weights are gone"):
        ask()
    with pytest.raises(InferenceServerException, match=r"(?s)tried again in a moment.*the weights are gone") as caught:
        ask()
    assert caught.value.status() == "503"
    assert "the last time that failed" in reason(server, "c")
    assert requests.get(f"{server.url}/v2/health/ready", timeout=10).status_code == 200
    models[2].write_version(1, 3)
    wait_until(lambda: is_answered(ask, 3))
    assert (reason(server, "c"), demand_loads(server, "c")) == ("", [1])


def said_at_the_end(*arguments) -> str:
    """Return what a server that can't start says of it."""
    server = ServerProcess(*arguments)
    assert server.wait() == 1
    return server.log()


def is_answered(ask, value: float) -> bool:
    try:
        return ask() == value
    except InferenceServerException:
        return False


def test_a_model_larger_than_the_limit_is_refused_with_both_numbers(tmp_path):
    model = ValueModel(tmp_path / "models", "big")
    model.write_config(declared(300))
    said = said_at_the_end(TWO_OF_THREE, tmp_path / "models")
    assert "takes 286.1 MiB (300000000 bytes) of memory, more than --model-memory-limit" in said
    assert "238.4 MiB (250000000 bytes)" in said
    assert not model.begun()


def test_a_worker_that_turns_out_larger_than_the_limit_is_ended_again(tmp_path, serve):
    value_models(tmp_path / "models", "a")[0].write_config("")
    server = serve(tmp_path / "models", "--model-memory-limit=4M", "--exit-on-error=false")
    answer = server.infer("a", {"inputs": []})
    assert answer.status_code in (404, 503), answer.text
    index = requests.post(f"{server.url}/v2/repository/index", json={}, timeout=10).json()
    assert (index[0]["state"], "more than --model-memory-limit" in index[0]["reason"]) == ("UNAVAILABLE", True)
    with pytest.raises(AssertionError, match="0 series"):
        server.metric("naiad_worker_memory_bytes", model="a")


@pytest.mark.parametrize("text", ["lots", "-1", "0", "1PB"])
def test_a_declared_size_that_is_no_number_of_bytes_is_named(tmp_path, text):
    ValueModel(tmp_path / "models", "a").write_config(declared().replace("100MB", text))
    said = said_at_the_end(TWO_OF_THREE, tmp_path / "models")
    assert f"parameter 'memory_bytes' is '{text}', must be a number of bytes" in said


def test_a_model_that_is_loaded_by_a_client_makes_room_for_itself(tmp_path, serve):
    value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, EXPLICIT, "--load-model=a", "--load-model=b")
    assert requests.post(f"{server.url}/v2/repository/models/c/load", json={}, timeout=10).status_code == 200
    assert resident(server, *NAMES) == ["b", "c"]
    assert [http_ask(server, name)() for name in NAMES] == [1, 2, 3]


def test_a_model_loaded_while_all_others_are_busy_is_ready_and_loads_at_its_first_request(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, EXPLICIT, "--load-model=a", "--load-model=b", environment=ENVIRONMENT)
    busy = [Asker(server, model).occupy(1) for model in models[:2]]
    assert requests.post(f"{server.url}/v2/repository/models/c/load", json={}, timeout=10).status_code == 200
    assert "its next request loads it" in reason(server, "c")
    for model in models:
        model.release()
    assert [asked.answer()[0] for asked in (*busy, Asker(server, models[2]).ask(5))] == [200] * 3


def test_a_reload_goes_beside_what_serves_or_takes_its_room(tmp_path, serve):
    (model,) = value_models(tmp_path / "models", "a")
    server = serve(tmp_path / "models", "--model-memory-limit=150MB", EXPLICIT, "--load-model=a")
    model.write_version(1, 7)
    assert requests.post(f"{server.url}/v2/repository/models/a/load", json={}, timeout=10).status_code == 200
    assert (http_ask(server, "a")(), resident(server, "a")) == (7, ["a"])


def test_a_reload_without_room_is_refused_and_what_serves_goes_on(tmp_path, serve):
    (model,) = scripted_models(tmp_path / "models", "a")
    server = serve(tmp_path / "models", "--model-memory-limit=150MB", EXPLICIT, "--load-model=a", environment=ENVIRONMENT)
    asker = Asker(server, model)
    busy = asker.occupy(1)
    config = (model_folder := tmp_path / "models" / "a" / "config.pbtxt").read_text()
    model_folder.write_text(config + "\nversion_policy { latest { num_versions: 2 } }")
    answer = requests.post(f"{server.url}/v2/repository/models/a/load", json={}, timeout=10)
    assert (answer.status_code, "needs 95.4 MiB" in answer.json()["error"]) == (400, True)
    model.release()
    assert (busy.answer(), asker.ask(2).answer()) == ((200, [1]), (200, [2]))


def test_unloading_a_model_that_is_not_in_memory_ends_it(tmp_path, serve):
    value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, EXPLICIT, "--load-model=*")
    assert requests.post(f"{server.url}/v2/repository/models/c/unload", json={}, timeout=10).status_code == 200
    wait_until(lambda: requests.get(f"{server.url}/v2/models/c/ready", timeout=10).status_code != 200)
    with pytest.raises(InferenceServerException, match="no available versions"):
        http_ask(server, "c")()


def test_a_stop_answers_who_waits_for_room_and_who_waits_for_a_load(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    busy = [Asker(server, model).occupy(1) for model in models[:2]]
    (waiting,) = Asker(server, models[2]).queue(1)
    server.process.terminate()
    status, text = waiting.answer()
    assert (status, "the server is shutting down" in text) == (503, True)
    for model in models:
        model.release()
    assert [asked.answer() for asked in busy] == [(200, [1])] * 2
    assert (server.wait(), "Traceback" in server.log()) == (0, False)


def test_a_stop_cuts_a_worker_short_that_starts_at_a_request(tmp_path, serve):
    value_models(tmp_path / "models", "a", "b")
    slow = ValueModel(tmp_path / "models", "c", sleep_s=60)
    slow.write_config(declared())
    server = serve(tmp_path / "models", TWO_OF_THREE)
    failures: list[str] = []

    def ask() -> None:
        try:
            http_ask(server, "c")()
        except InferenceServerException as error:
            failures.append(error.message())

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: "c_0" in " ".join(slow.begun()))
    began = time.monotonic()
    server.process.terminate()
    thread.join()
    assert ("the server is shutting down" in failures[0], server.wait()) == (True, 0)
    assert time.monotonic() - began < 8


def test_without_a_limit_there_is_no_budget(tmp_path, serve):
    ValueModel(tmp_path / "models", "a").write_config("")
    assert "memory_bytes" not in CONFIG
    server = serve(tmp_path / "models", "--model-memory-limit=0")
    text = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    assert ("naiad_worker_memory_bytes" in text, "naiad_model_memory" in text) == (True, False)
