"""Explicit control over HTTP and gRPC: load, unload, index, and what is refused."""

from __future__ import annotations

import json

import pytest
import requests
import tritonclient.grpc
from controlled_models import ValueModel, grpc_ask, http_ask, touch
from model_folders import identity
from server_process import failed_start
from tritonclient.utils import InferenceServerException
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"


@pytest.fixture
def models(tmp_path):
    identity(tmp_path / "models", "echo")
    identity(tmp_path / "models", "other")
    return tmp_path / "models"


def ready(server) -> int:
    return requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code


def test_nothing_is_loaded_at_the_start_and_the_index_has_the_names(models, serve, control):
    server = serve(models, EXPLICIT)
    client = control(server)
    assert client.index() == [("echo", "", "", ""), ("other", "", "", "")]
    assert ready(server) == 200
    assert "model_repository(unload_dependents)" in requests.get(f"{server.url}/v2", timeout=5).json()["extensions"]
    client.load("echo")
    assert client.index() == [("echo", "1", "READY", ""), ("other", "", "", "")]
    assert client.is_ready("echo")
    assert http_ask(server, "echo")() == grpc_ask(server, "echo")() == 1


def test_an_unloaded_model_says_so_and_can_be_loaded_again(models, serve, control):
    server = serve(models, EXPLICIT, "--load-model=echo")
    client = control(server)
    client.unload("echo")
    wait_until(lambda: client.index("echo") == [("echo", "1", "UNAVAILABLE", "unloaded")])
    assert ready(server) == 200
    with pytest.raises(InferenceServerException, match="has no available versions"):
        http_ask(server, "echo")()
    with pytest.raises(InferenceServerException, match="is not at ready state"):
        grpc_ask(server, "echo", "1")()
    assert 'model="echo"' not in requests.get(f"http://{server.metrics}/metrics", timeout=5).text
    client.load("echo")
    assert http_ask(server, "echo")() == 1
    assert server.metric("nv_inference_request_success", model="echo") == 1


def test_models_of_the_start_are_named_or_all(models, serve, http_control):
    named = http_control(serve(models, EXPLICIT, "--load-model=echo"))
    assert named.states("echo") == {"1": "READY"}
    assert named.states("other") == {"": ""}
    every = http_control(serve(models, EXPLICIT, "--load-model=*"))
    assert every.states("other") == {"1": "READY"}


def test_startup_models_need_explicit_control_and_the_wildcard_is_alone(models):
    assert "Use of '--load-model' requires setting '--model-control-mode=explicit'" in failed_start(models, "--load-model=a")
    said = failed_start(models, EXPLICIT, "--load-model=*", "--load-model=echo")
    assert "must be the ONLY startup model" in said


def test_a_startup_model_that_isnt_there_ends_the_start_or_is_in_the_index(models, serve, http_control):
    server = serve(models, EXPLICIT, "--load-model=nowhere", "--exit-on-error=false")
    [(_, _, state, reason)] = http_control(server).index("nowhere")
    assert (state, "failed to poll from model repository" in reason) == ("UNAVAILABLE", True)
    assert ready(server) != 200
    http_control(server).unload("nowhere")
    assert ready(server) == 200


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_without_explicit_control_nothing_can_be_loaded_or_unloaded(models, serve, control, mode):
    client = control(serve(models, f"--model-control-mode={mode}"))
    for change in (client.load, client.unload):
        with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed if polling is enabled"):
            change("echo")
    assert client.is_ready("echo")


def test_a_model_that_isnt_in_the_repositories_is_named_and_leaves_nothing(models, serve, control):
    server = serve(models, EXPLICIT)
    client = control(server)
    with pytest.raises(InferenceServerException, match="failed to load 'nowhere', failed to poll from model repository"):
        client.load("nowhere")
    assert client.index("nowhere") == []
    client.unload("nowhere")
    assert ready(server) == 200


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "."])
def test_names_that_no_model_can_have_are_refused(models, serve_once, name):
    with pytest.raises(InferenceServerException, match="must not be empty"):
        serve_once(models).load_model(name)


@pytest.fixture
def serve_once(serve):
    """gRPC: a path of HTTP can't hold such names."""

    def start(models):
        server = serve(models, EXPLICIT)
        return server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))

    return start


def test_a_model_in_two_repositories_isnt_loaded(models, tmp_path, serve, control):
    identity(tmp_path / "second", "echo")
    client = control(serve(models, tmp_path / "second", EXPLICIT))
    with pytest.raises(InferenceServerException, match="model appears in two or more repositories"):
        client.load("echo")
    assert client.index("echo") == [("echo", "", "UNAVAILABLE", "model appears in two or more repositories")]


def test_a_failed_load_says_why_in_the_answer_and_in_the_index(tmp_path, serve, control):
    model = ValueModel(tmp_path / "models")
    model.break_version(1)
    client = control(serve(tmp_path / "models", EXPLICIT, "--disable-auto-complete-config"))
    with pytest.raises(InferenceServerException) as raised:
        client.load("ver")
    text = raised.value.message()
    assert "load failed for model 'ver': version 1 is at UNAVAILABLE state: " in text
    assert "the weights are gone" in text
    [(_, version, state, reason)] = client.index("ver")
    assert (version, state, "the weights are gone" in reason) == ("1", "UNAVAILABLE", True)
    model.write_version(1, 5)
    client.load("ver")
    assert client.index("ver") == [("ver", "1", "READY", "")]


def test_a_config_override_stands_in_for_the_file_until_the_next_load(models, serve, control):
    server = serve(models, EXPLICIT)
    client = control(server)
    url = f"{server.url}/v2/models/echo/config"
    client.load("echo")
    config = requests.get(url, timeout=5).json()
    client.load("echo", config=json.dumps({**config, "max_batch_size": 3}))
    assert requests.get(url, timeout=5).json()["max_batch_size"] == 3
    client.load("echo", config=json.dumps(config))
    assert requests.get(url, timeout=5).json() == config
    client.load("echo", config=json.dumps({**config, "max_batch_size": 3}))
    client.load("echo")
    assert requests.get(url, timeout=5).json() == config


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("{", "Invalid config override: the value of 'config' is not JSON"),
        ('{"max_batch_sise": 1}', "max_batch_size"),
        ('{"name": "else"}', "unexpected directory name 'echo' for model 'else'"),
        ('{"backend": "identity", "max_batch_size": -1}', "max_batch_size"),
    ],
)
def test_a_wrong_override_is_refused_and_what_serves_goes_on(models, serve, control, override, words):
    server = serve(models, EXPLICIT, "--load-model=echo")
    client = control(server)
    with pytest.raises(InferenceServerException) as raised:
        client.load("echo", config=override)
    assert words in raised.value.message()
    assert http_ask(server, "echo")() == 1


def test_a_load_without_a_change_does_nothing(tmp_path, serve, http_control):
    model = ValueModel(tmp_path / "models")
    server = serve(tmp_path / "models", EXPLICIT)
    client = http_control(server)
    client.load("ver")
    client.load("ver")
    assert model.begun() == ["ver_0"]
    touch(model.folder / "1" / "value.txt")
    client.load("ver")
    assert model.begun() == ["ver_0", "ver_0"]


def test_a_folder_that_came_later_can_be_loaded(models, serve, control):
    server = serve(models, EXPLICIT)
    client = control(server)
    identity(models, "late")
    client.load("late")
    assert http_ask(server, "late")() == 1


def test_a_load_is_tried_again_as_often_as_the_operator_wants(tmp_path, serve, http_control):
    model = ValueModel(tmp_path / "models")
    # The first two times the file isn't there yet.
    source = (model.folder / "1" / "model.py").read_text()
    (model.folder / "1" / "model.py").write_text(
        "import pathlib\n"
        f"tries = pathlib.Path({str(tmp_path / 'tries')!r})\n"
        "tries.write_text((tries.read_text() if tries.exists() else '') + '.')\n"
        "assert len(tries.read_text()) > 2, 'too early'\n" + source
    )
    server = serve(tmp_path / "models", EXPLICIT, "--model-load-retry-count=1", "--load-model=ver", "--exit-on-error=false")
    client = http_control(server)
    assert client.states("ver") == {"": "UNAVAILABLE"}
    client.load("ver")
    assert client.states("ver") == {"1": "READY"}
    assert sum("it is tried again" in line for line in server.errors) == 1


def test_unload_of_dependents_is_accepted(models, serve, control):
    client = control(serve(models, EXPLICIT, "--load-model=echo"))
    client.unload("echo", unload_dependents=True)
    wait_until(lambda: client.states("echo") == {"1": "UNAVAILABLE"})
