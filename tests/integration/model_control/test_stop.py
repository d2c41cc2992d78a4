"""A server that stops while clients load and unload."""

from __future__ import annotations

import threading
import time

import requests
from asking import Asker
from controlled_models import ValueModel
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"


def load_in_background(server, name: str) -> tuple[threading.Thread, list[requests.Response]]:
    answers: list[requests.Response] = []
    url = f"{server.url}/v2/repository/models/{name}/load"
    thread = threading.Thread(target=lambda: answers.append(requests.post(url, timeout=15)))
    thread.start()
    return thread, answers


def test_a_stop_answers_those_who_wait_for_a_load_and_waits_for_no_thread(tmp_path, serve, http_control):
    held = ScriptedModel(tmp_path / "models", "held")
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=echo", environment=ENVIRONMENT)
    held.hold("load")
    thread, answers = load_in_background(server, "held")
    wait_until(lambda: http_control(server).states("held") == {"1": "LOADING"})
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 8
    thread.join()
    held.release()
    assert (answers[0].status_code, "shutting down" in answers[0].json()["error"]) == (503, True)
    assert "Traceback" not in server.log()


def test_a_stop_ends_a_worker_that_is_still_starting(tmp_path, serve, http_control):
    model = ValueModel(tmp_path / "models", sleep_s=60)
    server = serve(tmp_path / "models", EXPLICIT)
    thread, answers = load_in_background(server, "ver")
    wait_until(model.begun)
    assert server.stop() == 0
    thread.join()
    assert answers[0].status_code == 503
    assert "Traceback" not in server.log()


def test_a_stop_waits_for_what_an_old_copy_still_runs(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=held", environment=ENVIRONMENT)
    running = Asker(server, model).occupy(1)
    http_control(server).unload("held")
    server.process.terminate()
    wait_until(lambda: any("stopping:" in line for line in server.errors))
    model.release()
    assert running.answer() == (200, [1])
    assert server.wait() == 0
