"""Ports open at once and `ready` says 503 while models load; each model serves as soon as it is loaded; a stop needn't wait."""

from __future__ import annotations

import signal
import time

import pytest
import requests
from asking import Asker
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from waiting import wait_until


@pytest.fixture
def held(tmp_path):
    """A model that doesn't end loading before the test lets it."""
    identity(tmp_path / "models", "echo")
    model = ScriptedModel(tmp_path / "models", "held")
    model.hold("load")
    yield model
    model.release()


@pytest.fixture
def loading(tmp_path, held):
    server = ServerProcess(tmp_path / "models", "--exit-timeout-secs=5", environment=ENVIRONMENT)
    yield server.wait_listening()
    held.release()
    server.stop()


def status(server, path: str) -> int:
    return requests.get(f"{server.url}{path}", timeout=5).status_code


def test_while_a_model_loads_the_server_is_live_and_not_ready(loading, held):
    assert status(loading, "/v2/health/live") == 200
    assert status(loading, "/v2/health/ready") == 503
    assert requests.get(f"http://{loading.metrics}/metrics", timeout=5).status_code == 200
    asked = Asker(loading, held).ask(1)
    code, text = asked.answer()
    assert (code, "still loading" in text) == (503, True)
    wait_until(lambda: status(loading, "/v2/models/echo/ready") == 200)
    assert loading.infer("echo", {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}).ok
    held.release()
    loading.wait_ready()
    assert status(loading, "/v2/health/ready") == 200
    assert Asker(loading, held).ask(1).answer() == (200, [1])


def test_while_a_model_loads_the_index_says_so(loading):
    def states() -> dict[str, str]:
        index = requests.post(f"{loading.url}/v2/repository/index", timeout=5).json()
        return {entry["name"]: entry["state"] for entry in index}

    wait_until(lambda: states() == {"echo": "READY", "held": "LOADING"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_doesnt_wait_for_a_model_that_loads(loading, number):
    wait_until(lambda: status(loading, "/v2/models/echo/ready") == 200)
    began = time.monotonic()
    assert loading.stop(number) == 0
    assert time.monotonic() - began < 3
    assert "Traceback" not in loading.log()


def test_a_model_whose_loading_raises_has_the_reason_in_the_index(tmp_path, serve):
    ScriptedModel(tmp_path / "models", "refuses", refuse_load="the licence has expired")
    ScriptedModel(tmp_path / "models", "works")
    server = serve(tmp_path / "models", "--exit-on-error=false", environment=ENVIRONMENT)
    index = requests.post(f"{server.url}/v2/repository/index", timeout=5).json()
    assert [(entry["name"], entry["state"]) for entry in index] == [("refuses", "UNAVAILABLE"), ("works", "READY")]
    assert index[0]["reason"] == "the licence has expired"
    assert status(server, "/v2/health/ready") != 200
