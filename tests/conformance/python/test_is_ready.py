"""A model's own `is_ready`: the readiness endpoints ask it, and whatever it does, they answer."""

from __future__ import annotations

import pytest
import requests
import tritonclient.http
from python_models import source, write_echo, write_python_model
from python_models.batched import ask, tensor
from server_process import ServerProcess

READY = {
    "yes": True,
    "coroutine yes": True,
    "no": False,
    "coroutine no": False,
    "raises": False,
    "exits": False,
    "nothing": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    write_echo(repository)
    folder = write_python_model(repository, "own", source("readiness"))
    (folder / "way").write_text("yes")
    return folder


@pytest.fixture(scope="module")
def server(folder, serve_for_module) -> ServerProcess:
    return serve_for_module(folder.parent, "--worker-stop-timeout-secs=1")


@pytest.mark.parametrize("way", READY)
def test_the_model_is_ready_when_it_says_so_and_only_then(server, folder, way):
    (folder / "way").write_text(way)
    status = requests.get(f"{server.url}/v2/models/own/ready", timeout=5).status_code
    assert (status == 200) == READY[way]
    with tritonclient.http.InferenceServerClient(server.http) as client:
        assert client.is_model_ready("own") == READY[way]
        assert client.is_model_ready("echo")


def test_inference_goes_on_whatever_it_says(server, folder):
    (folder / "way").write_text("no")
    assert ask(server, "own", tensor("X", "FP32", (1, 1), 4)) == (200, {"Y": [4]})


def test_one_that_never_answers_is_not_ready_after_its_time_and_other_models_are(server, folder):
    (folder / "way").write_text("never")
    assert requests.get(f"{server.url}/v2/models/own/ready", timeout=15).status_code != 200
    assert requests.get(f"{server.url}/v2/models/echo/ready", timeout=5).status_code == 200
