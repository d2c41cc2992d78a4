"""Rules of weighted traffic between versions, asked with Triton's clients over HTTP and gRPC."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from controlled_models import Traffic, ValueModel
from model_folders import write_model
from server_process import ServerProcess

from naiad.core.traffic.policy import Split

MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}

CONFIG = """
backend: "identity"
max_batch_size: 8
version_policy { all {} }
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""


def traffic_parameter(settings: object) -> str:
    text = json.dumps(settings).replace('"', '\\"')
    return f'parameters {{ key: "naiad_traffic" value {{ string_value: "{text}" }} }}\n'


def echo(repository: Path, settings: object = None, versions: tuple[int, ...] = (1, 2, 3), name: str = "echo") -> Path:
    more = "" if settings is None else traffic_parameter(settings)
    return write_model(repository, name, CONFIG + more, versions)


def asker(server: ServerProcess, protocol: str) -> Callable[..., int]:
    """Return a function that asks `echo` and returns the version that has answered."""
    module = MODULES[protocol]
    address = server.http if protocol == "http" else server.grpc
    client = server.clients.enter_context(module.InferenceServerClient(address))
    tensor = module.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))

    def ask(version: str = "", **more) -> int:
        response = client.infer("echo", [tensor], model_version=version, **more).get_response()
        return int(response["model_version"] if protocol == "http" else response.model_version)

    return ask


def set_traffic(server: ServerProcess, settings: object, name: str = "echo") -> dict:
    reply = requests.post(f"{server.url}/v2/models/{name}/traffic", json=settings, timeout=10)
    assert reply.status_code == 200, reply.text
    return reply.json()


def get_traffic(server: ServerProcess, name: str = "echo") -> dict:
    return requests.get(f"{server.url}/v2/models/{name}/traffic", timeout=10).json()


@pytest.mark.parametrize("protocol", MODULES)
def test_requests_without_a_version_are_shared_by_weight_and_named_versions_get_theirs(serve, tmp_path, protocol):
    echo(tmp_path, {"weights": {"1": 80, "2": 20}})
    server = serve(tmp_path)
    ask = asker(server, protocol)
    counts = Counter(ask() for _ in range(600))
    assert set(counts) == {1, 2}
    # Six times the standard deviation of 600 draws.
    assert abs(counts[1] - 480) < 59
    assert [ask(str(version)) for version in (1, 2, 3)] == [1, 2, 3]
    for version in (1, 2):
        assert server.metric("naiad_traffic_requests_total", model="echo", version=str(version)) == counts[version]
    assert server.metric("naiad_traffic_share", model="echo", version="1") == 0.8
    assert server.metric("nv_inference_request_success", model="echo", version="2") == counts[2] + 1


@pytest.mark.parametrize("protocol", MODULES)
def test_a_sequence_stays_with_one_version_and_sequences_are_shared_by_weight(serve, tmp_path, protocol):
    weights = {1: 50, 2: 30, 3: 20}
    echo(tmp_path, {"weights": weights})
    ask = asker(serve(tmp_path), protocol)
    for number in range(1, 41):
        starts = [ask(sequence_id=number, sequence_start=step == 0, sequence_end=step == 2) for step in range(3)]
        assert starts == [Split(weights).for_sequence(number)] * 3
    named = [ask(sequence_id="session-7") for _ in range(3)]
    assert named == [Split(weights).for_sequence("session-7")] * 3


def test_an_open_sequence_isnt_moved_by_new_weights(serve, tmp_path):
    echo(tmp_path, {"weights": {"1": 1}})
    server = serve(tmp_path)
    ask = asker(server, "http")
    assert ask(sequence_id=5, sequence_start=True) == 1
    set_traffic(server, {"weights": {"1": 0.000001, "2": 1000}})
    assert Split({1: 0.000001, 2: 1000}).for_sequence(5) == 2
    assert [ask(sequence_id=5), ask(sequence_id=5, sequence_end=True)] == [1, 1]
    assert ask(sequence_id=5, sequence_start=True) == 2


def test_without_settings_the_latest_answers_and_nothing_is_counted(serve, tmp_path):
    echo(tmp_path)
    server = serve(tmp_path)
    assert {asker(server, protocol)() for protocol in MODULES} == {3}
    assert get_traffic(server) == {
        "model": "echo",
        "source": "none",
        "weights": {},
        "shadow": {},
        "max_shadow_in_flight": 16,
        "shares": {},
    }
    page = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    assert "naiad_traffic_requests_total{" not in page


def test_the_api_changes_and_takes_back_settings_without_a_reload(serve, tmp_path):
    echo(tmp_path, {"weights": {"1": 1}})
    server = serve(tmp_path)
    ask = asker(server, "grpc")
    assert ask() == 1
    changed = set_traffic(server, {"weights": {"2": 3, "1": 0, "9": 1}, "shadow": {"3": 0.5}})
    assert changed == get_traffic(server)
    assert changed == {
        "model": "echo",
        "source": "api",
        "weights": {"2": 3, "9": 1},
        "shadow": {"3": 0.5},
        "max_shadow_in_flight": 16,
        "shares": {"2": 1.0},
    }
    assert {ask() for _ in range(20)} == {2}
    set_traffic(server, {"weights": {}})
    assert ask() == 3
    reply = requests.delete(f"{server.url}/v2/models/echo/traffic", timeout=10)
    assert (reply.status_code, reply.json()["source"], reply.json()["weights"]) == (200, "config", {"1": 1})
    assert ask() == 1
    assert server.metric("nv_model_load_duration_secs", model="echo", version="1") >= 0


def test_weights_change_while_clients_ask_and_no_request_fails(serve, tmp_path):
    model = ValueModel(tmp_path / "repository")
    model.write_version(2, 2)
    model.write_config("version_policy { all {} }\n" + traffic_parameter({"weights": {"1": 1}}))
    server = serve(tmp_path / "repository")
    with Traffic(server, "ver", 8) as traffic:
        for settings in (
            {"weights": {"1": 50, "2": 50}},
            {"weights": {"2": 1}, "shadow": {"1": 1}},
            {"weights": {"1": 99, "2": 1}},
            {"weights": {"7": 1, "2": 1}, "shadow": {"1": 0.5, "8": 0.5}, "max_shadow_in_flight": 1},
            {"weights": {}},
            {"weights": {"1": 1}, "shadow": {"2": 1}},
        ):
            set_traffic(server, settings, "ver")
            traffic.wait_round()
        requests.delete(f"{server.url}/v2/models/ver/traffic", timeout=10).raise_for_status()
        traffic.wait_round()
    assert traffic.failures == []
    assert {value for answers in traffic.answers for value in answers} == {1.0, 2.0}


def test_a_version_that_goes_leaves_its_share_to_the_others_and_settings_of_the_api_stay(serve, tmp_path):
    folder = echo(tmp_path, {"weights": {"1": 1}})
    server = serve(tmp_path, "--model-control-mode=explicit", "--load-model=echo")
    ask = asker(server, "http")
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    set_traffic(server, {"weights": {"1": 1, "2": 1}})

    def reload(versions: str) -> None:
        policy = f"version_policy {{ specific {{ versions: [ {versions} ] }} }}"
        (folder / "config.pbtxt").write_text(CONFIG.replace("version_policy { all {} }", policy))
        client.load_model("echo")

    reload("2, 3")
    assert {ask() for _ in range(20)} == {2}
    assert (get_traffic(server)["source"], get_traffic(server)["shares"]) == ("api", {"2": 1.0})
    reload("3")
    # None of the weighted versions is there: the latest answers.
    assert ask() == 3
    assert get_traffic(server)["shares"] == {}
    reload("1, 2, 3")
    assert get_traffic(server)["shares"] == {"1": 0.5, "2": 0.5}
    client.unload_model("echo")
    with pytest.raises(tritonclient.http.InferenceServerException, match="has no available versions"):
        ask()
    client.load_model("echo")
    assert get_traffic(server)["weights"] == {"1": 1, "2": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "traffic of model 'echo': it must have 'weights', 'shadow' or both"),
        (
            {"weights": {"1": -2}},
            "traffic of model 'echo': 'weights' of version \"1\" is -2, must be a number from 0 to 1000000000",
        ),
        (
            {"shadow": {"x": 0.5}},
            "traffic of model 'echo': 'shadow' has the version \"x\", must be the name of a version's folder, like \"1\"",
        ),
        (
            {"weights": {"1": 1}, "shadow": {"2" * 70_000: 1}},
            "traffic settings have 70040 bytes, at most 65536 are allowed",
        ),
        ([1], "the request's JSON must be an object, got an array"),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(serve_echo, body, text):
    before = get_traffic(serve_echo)
    reply = requests.post(f"{serve_echo.url}/v2/models/echo/traffic", json=body, timeout=10)
    assert (reply.status_code, reply.json()) == (400, {"error": text})
    assert get_traffic(serve_echo) == before


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_model_is_not_found(serve_echo, method):
    reply = requests.request(method, f"{serve_echo.url}/v2/models/nobody/traffic", json={"weights": {"1": 1}}, timeout=10)
    assert (reply.status_code, reply.json()) == (404, {"error": "Request for unknown model: 'nobody' is not found"})


@pytest.fixture(scope="module")
def serve_echo(serve_for_module, tmp_path_factory) -> ServerProcess:
    path = tmp_path_factory.mktemp("repository")
    echo(path, {"weights": {"1": 1}})
    return serve_for_module(path)


def test_traffic_belongs_to_the_group_of_the_model_repository(serve, tmp_path):
    echo(tmp_path)
    server = serve(tmp_path, "--http-restricted-api=model-repository:admin=secret")
    url = f"{server.url}/v2/models/echo/traffic"
    for method in ("GET", "POST", "DELETE"):
        assert requests.request(method, url, json={"weights": {"1": 1}}, timeout=10).status_code == 403
        reply = requests.request(method, url, json={"weights": {"1": 1}}, headers={"admin": "secret"}, timeout=10)
        assert reply.status_code == 200
    assert asker(server, "http")() == 3


def test_traffic_needs_an_api_key_where_others_do(serve, tmp_path):
    echo(tmp_path)
    server = serve(tmp_path, "--api-key=0123456789abcdef0123456789abcdef")
    url = f"{server.url}/v2/models/echo/traffic"
    assert requests.post(url, json={"weights": {"1": 1}}, timeout=10).status_code == 401
    key = {"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}
    assert requests.post(url, json={"weights": {"1": 1}}, headers=key, timeout=10).status_code == 200


def test_bad_settings_of_a_configuration_fail_the_load_with_their_mistake(serve, tmp_path):
    echo(tmp_path, {"weights": {"1": 1}})
    echo(tmp_path, {"weights": {"1": "much"}}, name="wrong")
    server = serve(tmp_path, "--exit-on-error=false", "--strict-readiness=false")
    index = requests.post(f"{server.url}/v2/repository/index", timeout=10).json()
    reasons = {entry["name"]: entry.get("reason", "") for entry in index}
    text = "parameter 'naiad_traffic' for wrong: 'weights' of version \"1\" is \"much\", must be a number from 0 to 1000000000"
    assert text in reasons["wrong"]
    assert asker(server, "http")() == 1


def test_a_name_that_two_models_have_is_refused_with_namespaces(serve, tmp_path):
    for folder in ("one", "two"):
        echo(tmp_path / folder)
    echo(tmp_path / "two", {"weights": {"2": 1}}, name="other")
    server = serve(tmp_path / "one", f"--model-repository={tmp_path / 'two'}", "--model-namespacing=true")
    for method in ("GET", "POST", "DELETE"):
        url = f"{server.url}/v2/models/echo/traffic"
        reply = requests.request(method, url, json={"weights": {"1": 1}}, timeout=10)
        assert (reply.status_code, "2 identifiers of model 'echo'" in reply.text) == (400, True)
    assert get_traffic(server, "other")["shares"] == {"2": 1}
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    assert server.infer("other", body).json()["model_version"] == "2"
    assert server.metric("naiad_traffic_share", model="other", version="2") == 1


def test_versions_come_and_go_while_clients_ask_and_no_request_fails(serve, tmp_path):
    model = ValueModel(tmp_path / "repository")
    model.write_version(2, 2)
    both = traffic_parameter({"weights": {"1": 1, "2": 1}})
    model.write_config("version_policy { all {} }\n" + both)
    server = serve(tmp_path / "repository", "--model-control-mode=explicit", "--load-model=ver")
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http, network_timeout=15))
    set_traffic(server, {"weights": {"1": 1, "2": 1}, "shadow": {"3": 0.5}}, "ver")
    with Traffic(server, "ver", 4) as traffic:
        for versions in ("2", "1", "1, 2"):
            model.write_config(f"version_policy {{ specific {{ versions: [ {versions} ] }} }}\n" + both)
            client.load_model("ver")
            traffic.wait_round()
            begun = [len(answers) for answers in traffic.answers]
            traffic.wait_round()
            late = {value for answers, start in zip(traffic.answers, begun) for value in answers[start:]}
            assert late <= {float(version) for version in versions.split(",")}
    assert traffic.failures == []
    assert get_traffic(server, "ver")["shares"] == {"1": 0.5, "2": 0.5}
