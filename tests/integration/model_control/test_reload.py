"""A model that is in use is loaded anew: no request is lost, and what fails to load changes nothing."""

from __future__ import annotations

import shutil
import threading
from itertools import groupby

import pytest
import requests
from asking import Asker
from controlled_models import Traffic, ValueModel, grpc_ask, http_ask, touch
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from tritonclient.utils import InferenceServerException
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"


@pytest.mark.timeout(60)
def test_changes_under_traffic_lose_no_request_and_never_go_back(tmp_path, serve, http_control):
    """Case 12: another value, another version, another count, a broken version; each while clients ask."""
    model = ValueModel(tmp_path / "models", sleep_s=0.3)
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=ver")
    client = http_control(server)
    with Traffic(server, "ver", 4) as traffic:
        model.write_version(1, 2)
        client.load("ver")
        traffic.wait_round()
        model.write_version(2, 3)
        client.load("ver")
        traffic.wait_round()
        before = model.begun()
        model.write_config("instance_group [{ count: 2 kind: KIND_CPU }]")
        client.load("ver")
        model.write_config("instance_group [{ count: 3 kind: KIND_CPU }]")
        client.load("ver")
        traffic.wait_round()
        model.break_version(3)
        with pytest.raises(InferenceServerException, match=r"load failed for model 'ver'.*the weights are gone"):
            client.load("ver")
        traffic.wait_round()
        lines = client.index("ver")
    assert traffic.failures == []
    for answers in traffic.answers:
        assert answers == sorted(answers)
        assert set(answers) == {1, 2, 3}
    assert model.begun()[len(before) :] == ["ver_0_0", "ver_0_1", "ver_0_2"]
    states = {version: (state, "the weights are gone" in reason) for _, version, state, reason in lines}
    assert states == {"1": ("UNAVAILABLE", False), "2": ("READY", True), "3": ("UNAVAILABLE", True)}
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200


@pytest.mark.timeout(120)
def test_fifty_reloads_fail_not_one_request_of_ten_clients(tmp_path, serve, http_control):
    folder = identity(tmp_path / "models")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=echo")
    client = http_control(server)
    with Traffic(server, "echo", 10) as traffic:
        for _ in range(50):
            touch(folder / "config.pbtxt")
            client.load("echo")
        traffic.wait_round()
    assert traffic.failures == []
    assert client.index("echo") == [("echo", "1", "READY", "")]


@pytest.mark.timeout(60)
def test_versions_and_policies_that_change_fail_no_request_for_a_version_that_stays(tmp_path, serve, http_control):
    """Ten clients: half ask for version 2, which every policy keeps, half for the greatest."""
    model = ValueModel(tmp_path / "models", value=1)
    model.write_version(2, 2)
    model.write_config("version_policy { all { } }")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=ver")
    client = http_control(server)

    def change(policy: str, served: set[str]) -> None:
        model.write_config(f"version_policy {{ {policy} }}")
        client.load("ver")
        assert {version for version, state in client.states("ver").items() if state == "READY"} == served
        traffic.wait_round()

    with Traffic(server, "ver", 10, versions=("2", "")) as traffic:
        change("specific { versions: [ 2 ] }", {"2"})
        model.write_version(3, 3)
        change("latest { num_versions: 2 }", {"2", "3"})
        shutil.rmtree(model.folder / "1")
        model.write_version(7, 7)
        change("specific { versions: [ 2, 7 ] }", {"2", "7"})
        change("all { }", {"2", "3", "7"})
        shutil.rmtree(model.folder / "7")
        change("all { }", {"2", "3"})
        shutil.rmtree(model.folder / "3")
        change("latest { num_versions: 3 }", {"2"})
    assert traffic.failures == []
    of_two = [answers for number, answers in enumerate(traffic.answers) if number // 2 % 2 == 0]
    of_greatest = [answers for number, answers in enumerate(traffic.answers) if number // 2 % 2 == 1]
    assert {value for answers in of_two for value in answers} == {2}
    for answers in of_greatest:
        # In the order of what was the greatest: each change once, none back and forth.
        assert [value for value, _ in groupby(answers)] == [2, 3, 7, 3, 2]


def test_what_an_old_copy_has_begun_ends_there_and_it_is_unloaded_then(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=held", environment=ENVIRONMENT)
    asker, client = Asker(server, model), http_control(server)
    running = asker.occupy(1)
    touch(tmp_path / "models" / "held" / "config.pbtxt")
    client.load("held")
    assert asker.ask(2).answer() == (200, [2])
    client.unload("held")
    model.release()
    assert running.answer() == (200, [1])
    wait_until(lambda: client.states("held") == {"1": "UNAVAILABLE"})


def test_an_unloading_model_ends_what_it_has_and_refuses_more(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=held", environment=ENVIRONMENT)
    asker, client = Asker(server, model), http_control(server)
    running = asker.occupy(1)
    client.unload("held")
    assert client.states("held") == {"1": "UNLOADING"}
    assert asker.ask(2).answer()[0] == 404
    client.load("held")
    assert asker.ask(3).answer() == (200, [3])
    model.release()
    assert running.answer() == (200, [1])
    assert client.states("held") == {"1": "READY"}


def test_a_load_that_hangs_holds_up_no_other_model_and_no_request(tmp_path, serve, http_control):
    """Case 33 in short: others load, serve and answer meanwhile; who gives the load call up does no harm."""
    held = ScriptedModel(tmp_path / "models", "held")
    identity(tmp_path / "models", "echo")
    identity(tmp_path / "models", "late")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=echo", environment=ENVIRONMENT)
    client = http_control(server)
    held.hold("load")
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(f"{server.url}/v2/repository/models/held/load", timeout=0.5)
    assert client.states("held") == {"1": "LOADING"}
    client.load("late")
    assert http_ask(server, "late")() == grpc_ask(server, "echo")() == 1
    held.release()
    wait_until(lambda: client.states("held") == {"1": "READY"})


def test_loads_of_one_model_come_one_after_the_other_and_an_unload_after_them(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, environment=ENVIRONMENT)
    client = http_control(server)
    model.hold("load")
    url = f"{server.url}/v2/repository/models/held"
    codes: list[int] = []
    first = threading.Thread(target=lambda: codes.append(requests.post(f"{url}/load", timeout=10).status_code))
    first.start()
    wait_until(lambda: client.states("held") == {"1": "LOADING"})
    second = threading.Thread(target=lambda: codes.append(requests.post(f"{url}/unload", timeout=10).status_code))
    second.start()
    assert client.states("held") == {"1": "LOADING"}
    model.release()
    first.join()
    second.join()
    assert codes == [200, 200]
    wait_until(lambda: client.states("held") == {"1": "UNAVAILABLE"})


def test_versions_come_and_go_as_the_policy_says(tmp_path, serve, http_control):
    model = ValueModel(tmp_path / "models")
    model.write_config("version_policy { all { } }")
    model.write_version(2, 2)
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=ver")
    client = http_control(server)
    assert client.states("ver") == {"1": "READY", "2": "READY"}
    model.write_version(3, 3)
    model.write_config("version_policy { specific { versions: [ 1, 3 ] } }")
    client.load("ver")
    wait_until(lambda: client.states("ver") == {"1": "READY", "2": "UNAVAILABLE", "3": "READY"})
    assert http_ask(server, "ver")() == 3
    assert http_ask(server, "ver", "1")() == 1
    with pytest.raises(InferenceServerException, match="version 2 is not at ready state"):
        http_ask(server, "ver", "2")()
    metrics = requests.get(f"http://{server.metrics}/metrics", timeout=5).text
    assert [f'model="ver",version="{number}"' in metrics for number in (1, 2, 3)] == [True, False, True]


def test_a_reload_whose_config_is_wrong_keeps_what_serves_and_the_next_one_mends_it(tmp_path, serve, control):
    folder = identity(tmp_path / "models")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=echo")
    client = control(server)
    right = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(right + "max_batch_sise: 3")
    with pytest.raises(InferenceServerException, match="max_batch_sise"):
        client.load("echo")
    [(_, _, state, reason)] = client.index("echo")
    assert (state, "the last reload failed" in reason) == ("READY", True)
    assert http_ask(server, "echo")() == 1
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200
    (folder / "config.pbtxt").write_text(right)
    client.load("echo")
    assert client.index("echo") == [("echo", "1", "READY", "")]


def test_fewer_instances_end_what_they_run_first(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held", more="instance_group [{ count: 2 }]", max_batch_size=1)
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=held", environment=ENVIRONMENT)
    asker, client = Asker(server, model), http_control(server)
    running = [asker.occupy(1), asker.occupy(2)]
    config = tmp_path / "models" / "held" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 1"))
    client.load("held")
    model.release()
    assert sorted(asked.answer()[1][0] for asked in running) == [1, 2]
    assert asker.ask(3).answer() == (200, [3])
    shown = requests.get(f"{server.url}/v2/models/held/config", timeout=5).json()
    assert [group["count"] for group in shown["instance_group"]] == [1]


def test_a_model_goes_on_with_its_statistics_in_place_and_begins_anew_when_it_is_reloaded(tmp_path, serve, http_control):
    folder = identity(tmp_path / "models", more="instance_group [{ count: 1 }]")
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=echo")
    client, ask = http_control(server), http_ask(server, "echo")
    config = folder / "config.pbtxt"
    ask()
    config.write_text(config.read_text().replace("count: 1", "count: 2"))
    client.load("echo")
    ask()
    assert server.metric("nv_inference_request_success", model="echo") == 2
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    client.load("echo")
    ask()
    assert server.metric("nv_inference_request_success", model="echo") == 1
