"""`--model-namespacing` in a running server: equal names are served apart, one name is one answer or a refusal."""

from __future__ import annotations

import numpy as np
import pytest
import requests
import tritonclient.grpc
from controlled_models import ValueModel, http_ask
from model_folders import identity
from tritonclient.utils import InferenceServerException
from waiting import wait_until

NAMESPACED = "--model-namespacing=true"
EXPLICIT = "--model-control-mode=explicit"


@pytest.fixture
def repositories(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for repository in (first, second):
        identity(repository, "same")
    identity(second, "only")
    return first, second


def test_both_are_loaded_and_a_request_for_the_name_is_refused(repositories, serve, control):
    server = serve(*repositories, NAMESPACED)
    client = control(server)
    assert client.index() == [("only", "1", "READY", ""), ("same", "1", "READY", ""), ("same", "1", "READY", "")]
    assert http_ask(server, "only")() == 1
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200
    for path in ("", "/config", "/stats", "/ready", "/versions/1"):
        answer = requests.get(f"{server.url}/v2/models/same{path}", timeout=5)
        assert (answer.status_code, "There are 2 identifiers of model 'same'" in answer.text) == (400, True), path
    with pytest.raises(InferenceServerException, match="model namespace must be provided to resolve ambiguity"):
        http_ask(server, "same")()
    grpc = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with pytest.raises(InferenceServerException, match="ambiguity") as caught:
        grpc.infer("same", [tensor])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_each_has_its_own_series(repositories, serve):
    server = serve(*repositories, NAMESPACED)
    for repository in repositories:
        assert server.metric("nv_inference_request_success", model="same", namespace=str(repository)) == 0
        assert server.metric("naiad_running_requests", model="same", namespace=str(repository)) == 0
    text = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_loads_and_unloads_are_of_all_models_of_the_name(repositories, serve, http_control):
    server = serve(*repositories, NAMESPACED, EXPLICIT)
    client = http_control(server)
    assert client.index() == [("only", "", "", ""), ("same", "", "", ""), ("same", "", "", "")]
    client.load("same")
    assert client.index("same") == [("same", "1", "READY", "")] * 2
    client.unload("same")
    wait_until(lambda: client.index("same") == [("same", "1", "UNAVAILABLE", "unloaded")] * 2)
    with pytest.raises(InferenceServerException, match="has no available versions"):
        http_ask(server, "same")()
    with pytest.raises(InferenceServerException, match="failed to load 'none', failed to poll from model repository"):
        client.load("none")


def test_one_that_fails_is_told_and_the_other_is_loaded(repositories, serve, http_control):
    (repositories[0] / "same/config.pbtxt").write_text("max_batch_size: -1")
    server = serve(*repositories, NAMESPACED, EXPLICIT)
    client = http_control(server)
    with pytest.raises(InferenceServerException, match="load failed for model 'same'"):
        client.load("same")
    # What can't be read claims no name: the other one answers.
    assert http_ask(server, "same")() == 1


def test_startup_models_are_all_of_the_name(repositories, serve, http_control):
    client = http_control(serve(*repositories, NAMESPACED, EXPLICIT, "--load-model=same"))
    assert client.index() == [("only", "", "", ""), ("same", "1", "READY", ""), ("same", "1", "READY", "")]


def test_the_one_that_stays_answers_when_the_other_goes(tmp_path, serve, http_control):
    stays = ValueModel(tmp_path / "a", value=1)
    goes = ValueModel(tmp_path / "b", value=2)
    poll = ("--model-control-mode=poll", "--repository-poll-secs=1")
    server = serve(tmp_path / "a", tmp_path / "b", NAMESPACED, *poll)
    client = http_control(server)
    assert client.index(stays.name) == [("ver", "1", "READY", "")] * 2
    goes.folder.rename(tmp_path / "away")
    wait_until(lambda: client.index() == [("ver", "1", "READY", ""), ("ver", "1", "UNAVAILABLE", "unloaded")])
    assert http_ask(server, "ver")() == 1


def test_without_namespaces_neither_is_loaded(repositories, serve, control):
    server = serve(*repositories, "--exit-on-error=false")
    client = control(server)
    assert client.index("same") == [("same", "", "UNAVAILABLE", "model appears in two or more repositories")]
    assert http_ask(server, "only")() == 1
