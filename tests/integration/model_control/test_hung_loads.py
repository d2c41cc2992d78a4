"""Loads that hang are given up: others don't wait for them, and the model can be loaded again or unloaded."""

from __future__ import annotations

import threading

import psutil
import pytest
import requests
from controlled_models import CONFIG, http_ask
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from tritonclient.utils import InferenceServerException
from waiting import wait_until

import naiad

EXPLICIT = "--model-control-mode=explicit"
LIMIT = "--model-load-timeout-secs=1"
ONE_THREAD = "--model-load-thread-count=1"

_HANGS = """
import time
class TritonPythonModel:
    def initialize(self, args):
        time.sleep(3600)
    def execute(self, requests):
        return []
"""

_LOADS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        pb_utils.load_model({other!r})

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones((1, 1), np.float32))]) for _ in requests]
"""


def write_python(models, name: str, code: str) -> None:
    folder = models / name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    (folder / "model.py").write_text(code)


def test_a_load_that_hangs_in_a_thread_is_given_up_and_a_later_one_works(tmp_path, serve, http_control):
    held = ScriptedModel(tmp_path / "models", "held")
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", EXPLICIT, LIMIT, ONE_THREAD, environment=ENVIRONMENT)
    client = http_control(server)
    held.hold("load")
    with pytest.raises(InferenceServerException, match=r"1 has taken 1 s \(--model-load-timeout-secs\) and was given up"):
        client.load("held")
    [(_, _, state, reason)] = client.index("held")
    assert (state, "was given up" in reason) == ("UNAVAILABLE", True)
    # The only thread for loads hangs: others get another one.
    client.load("echo")
    assert http_ask(server, "echo")() == 1
    client.unload("held")
    held.release()
    client.load("held")
    assert client.states("held") == {"1": "READY"}
    wait_until(lambda: "has ended after it was given up" in server.log())
    assert http_ask(server, "held")() == 1


def test_a_reload_that_hangs_leaves_what_serves(tmp_path, serve, http_control):
    held = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, LIMIT, "--load-model=held", environment=ENVIRONMENT)
    client = http_control(server)
    held.hold("load")
    (tmp_path / "models" / "held" / "2").mkdir()
    with pytest.raises(InferenceServerException, match="was given up"):
        client.load("held")
    states = {version: (state, "given up" in reason) for _, version, state, reason in client.index("held")}
    assert states == {"1": ("READY", True), "2": ("UNAVAILABLE", True)}
    assert http_ask(server, "held")() == 1
    held.release()


def test_a_python_model_whose_initialize_hangs_is_given_up_with_its_process(tmp_path, serve, http_control):
    write_python(tmp_path / "models", "hangs", _HANGS)
    server = serve(tmp_path / "models", LIMIT, "--exit-on-error=false")
    [(_, _, state, reason)] = http_control(server).index("hangs")
    assert (state, "was given up" in reason) == ("UNAVAILABLE", True)
    wait_until(lambda: psutil.Process(server.pid).children() == [], what="the end of the worker")
    assert requests.get(f"{server.url}/v2/health/live", timeout=5).status_code == 200


def test_models_that_load_each_other_are_refused_with_the_circle(tmp_path, serve, http_control):
    """Whichever asks second is told; the first one then hears that the other can't be loaded."""
    models = tmp_path / "models"
    for name, other in ("ab", "ba"):
        write_python(models, name, _LOADS.format(other=other))
    client = http_control(serve(models, EXPLICIT))
    with pytest.raises(InferenceServerException, match=r"'b' can't load or unload 'a' while it is being loaded itself"):
        client.load("a")
    assert client.states("a") == client.states("b") == {"1": "UNAVAILABLE"}


def test_a_model_that_loads_another_one_needs_no_second_thread(tmp_path, serve, http_control):
    models = tmp_path / "models"
    write_python(models, "first", _LOADS.format(other="second"))
    identity(models, "second")
    client = http_control(serve(models, EXPLICIT, ONE_THREAD))
    client.load("first")
    assert client.states("first") == client.states("second") == {"1": "READY"}


def test_a_disk_that_hangs_at_the_start_is_given_up_too(tmp_path, monkeypatch):
    identity(tmp_path, "echo")
    may_go_on = threading.Event()

    def hanging(source):
        may_go_on.wait(10)
        return source

    monkeypatch.setattr("naiad.repository.control.control.with_state", hanging)
    server = naiad.Server(http=False, model_repository=tmp_path, model_load_timeout_secs=0.5)
    try:
        with pytest.raises(naiad.InferenceServerError, match=r"reading model 'echo' has taken 0\.5 s .* was given up"):
            server.start()
    finally:
        may_go_on.set()


def test_a_server_with_a_load_that_still_hangs_in_its_thread_stops_as_ever(tmp_path, serve):
    held = ScriptedModel(tmp_path / "models", "held")
    held.hold("load")
    server = serve(tmp_path / "models", LIMIT, "--exit-on-error=false", environment=ENVIRONMENT)
    assert server.stop(timeout_s=8) == 0
    assert "Traceback" not in server.log()
    held.release()
