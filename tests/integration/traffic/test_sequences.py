"""Rules of traffic for models that remember: a conversation isn't cut in two, and its copy is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import requests
import sequence_models
import tritonclient.grpc
import tritonclient.http
from sequence_models import SequenceClient
from server_process import ServerProcess
from waiting import wait_until

from naiad.core.traffic.policy import Split

CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture
def server(serve, tmp_path: Path) -> ServerProcess:
    folder = sequence_models.accumulate(tmp_path)
    shutil.copytree(folder / "1", folder / "2")
    shutil.copytree(folder / "1", folder / "3")
    with (folder / "config.pbtxt").open("a") as file:
        file.write("\nversion_policy { all {} }\n")
    return serve(tmp_path)


def set_traffic(server: ServerProcess, settings: object) -> None:
    requests.post(f"{server.url}/v2/models/accumulate/traffic", json=settings, timeout=10).raise_for_status()


def client_of(server: ServerProcess, protocol: str) -> SequenceClient:
    client = SequenceClient(CLIENTS[protocol], getattr(server, protocol), "accumulate")
    server.clients.enter_context(client.triton)
    return client


def copies(server: ServerProcess) -> float:
    return server.metric("naiad_shadow_requests_total", model="accumulate", version="3", result="success")


@pytest.mark.parametrize("protocol", CLIENTS)
def test_open_sequences_end_where_they_began_whatever_the_weights_become(server, protocol):
    client = client_of(server, protocol)
    weights = {1: 1, 2: 1}
    ids = range(1, 9)
    assert {Split(weights).for_sequence(number) for number in ids} == {1, 2}
    set_traffic(server, {"weights": weights})
    assert [client.ask(number, 1, "S", width=2) for number in ids] == [[1, 1]] * 8
    for step, settings in enumerate(({"weights": {"1": 1}}, {"weights": {"3": 1}}, {"weights": {}}), 2):
        set_traffic(server, settings)
        assert [client.ask(number, 1, width=2) for number in ids] == [[step, step]] * 8
    requests.delete(f"{server.url}/v2/models/accumulate/traffic", timeout=10).raise_for_status()
    assert [client.ask(number, 1, "E", width=2) for number in ids] == [[5, 5]] * 8
    assert client.ask(1, 1, "SE", width=2) == [1, 1]
    assert server.metric("nv_inference_request_success", model="accumulate", version="3") == 1


def test_a_sequence_is_copied_whole_and_the_copy_has_a_state_of_its_own(server):
    client = client_of(server, "http")
    set_traffic(server, {"weights": {"1": 1}, "shadow": {"3": 1}})
    asked = [client.ask("a", step, "S" * (step == 1) + "E" * (step == 4), width=2) for step in (1, 2, 3, 4)]
    assert asked == [[1, 1], [3, 3], [6, 6], [10, 10]]
    wait_until(lambda: copies(server) == 4)
    for version in ("1", "3"):
        assert server.metric("nv_inference_request_success", model="accumulate", version=version) == 4


def test_a_sequence_that_must_begin_with_a_start_is_refused_and_not_copied(server):
    client = client_of(server, "http")
    set_traffic(server, {"weights": {"1": 1}, "shadow": {"3": 1}})
    with pytest.raises(tritonclient.http.InferenceServerException, match="must specify the START flag"):
        client.ask(5, 1, width=2)
    page = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    assert "naiad_shadow_requests_total{" not in page
