"""More models than fit into memory: all are served, idle ones make room, busy ones stay."""

from __future__ import annotations

import numpy as np
import pytest
import requests
import tritonclient.grpc
from asking import Asker
from controlled_models import grpc_ask, http_ask
from limited_memory import (
    TWO_OF_THREE,
    declared,
    demand_loads,
    evictions,
    reason,
    resident,
    scripted_models,
    value_models,
)
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

NAMES = ("a", "b", "c")
MODES = ("--model-control-mode=none", "--model-control-mode=poll", "--model-control-mode=explicit")


@pytest.mark.parametrize("mode", MODES)
def test_three_models_with_room_for_two_all_answer_in_turns_by_http_and_grpc(tmp_path, serve, mode):
    value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, mode, *(["--load-model=*"] if "explicit" in mode else []))
    assert resident(server, *NAMES) == ["a", "b"]
    asks = [make(server, name) for make in (http_ask, grpc_ask) for name in NAMES]
    assert [ask() for _ in range(2) for ask in asks] == [1, 2, 3] * 4
    assert resident(server, *NAMES) == ["b", "c"]
    assert demand_loads(server, *NAMES) == [3, 3, 4]


def test_the_least_recently_used_makes_room_and_no_more_than_needed(tmp_path, serve):
    value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE)
    asks = {name: http_ask(server, name) for name in NAMES}
    for name in ("b", "a", "c"):
        asks[name]()
    assert (resident(server, *NAMES), evictions(server, *NAMES)) == (["a", "c"], [0, 1, 0])


def test_a_model_out_of_memory_is_ready_described_and_counted_as_before(tmp_path, serve):
    value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE)
    for name in NAMES:
        http_ask(server, name)()
    assert "its next request loads it" in reason(server, "a")
    assert reason(server, "c") == ""
    for path in ("/v2/health/ready", "/v2/models/a/ready", "/v2/models/a", "/v2/models/a/config"):
        assert requests.get(server.url + path, timeout=10).status_code == 200
    (statistics,) = requests.get(f"{server.url}/v2/models/a/stats", timeout=10).json()["model_stats"]
    assert statistics["inference_count"] == 1
    http_ask(server, "a")()
    assert server.metric("nv_inference_request_success", model="a") == 2
    assert resident(server, *NAMES) == ["a", "c"]


def test_a_request_that_the_model_refuses_loads_nothing(tmp_path, serve):
    for name in NAMES:
        identity(tmp_path / "models", name, more=declared())
    server = serve(tmp_path / "models", TWO_OF_THREE)
    wrong = {"inputs": [{"name": "nope", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    assert server.infer("c", wrong).status_code == 400
    assert (resident(server, *NAMES), demand_loads(server, "c")) == (["a", "b"], [0])


def test_a_busy_model_stays_and_the_request_waits_until_one_falls_idle(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    a, b, c = (Asker(server, model) for model in models)
    busy = [a.occupy(1), b.occupy(2)]
    (waiting,) = c.queue(3)
    assert (resident(server, *NAMES), evictions(server, *NAMES)) == (["a", "b"], [0, 0, 0])
    models[1].release()
    assert (busy[1].answer(), waiting.answer()) == ((200, [2]), (200, [3]))
    assert resident(server, *NAMES) == ["a", "c"]
    models[0].release()
    assert busy[0].answer() == (200, [1])


def test_a_waiting_request_that_is_given_up_evicts_nobody(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    a, b, c = (Asker(server, model) for model in models)
    busy = [a.occupy(1), b.occupy(2)]
    (waiting,) = c.queue(3)
    waiting.hang_up()
    wait_until(lambda: c.pending() == 0)
    for model in models:
        model.release()
    assert [asked.answer() for asked in busy] == [(200, [1]), (200, [2])]
    assert (resident(server, *NAMES), demand_loads(server, "c")) == (["a", "b"], [0])


def test_many_first_requests_start_one_load(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    models[2].hold("load")
    asked = Asker(server, models[2]).queue(*range(20))
    models[2].release()
    assert [each.answer() for each in asked] == [(200, [value]) for value in range(20)]
    assert (demand_loads(server, "c"), evictions(server, "a", "b")) == ([1], [1, 0])


def test_a_deadline_ends_a_request_that_waits_and_the_load_goes_on(tmp_path, serve):
    models = scripted_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    models[2].hold("load")
    ask = grpc_ask(server, "c")
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with pytest.raises(tritonclient.grpc.InferenceServerException) as caught:
        client.infer("c", [tensor], client_timeout=0.05)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    wait_until(lambda: Asker(server, models[2]).pending() == 0)
    models[2].release()
    wait_until(lambda: demand_loads(server, "c") == [1])
    assert (ask(), demand_loads(server, "c")) == (1, [1])


def test_the_queue_policy_s_time_out_holds_while_a_model_is_loaded(tmp_path, serve):
    scripted_models(tmp_path / "models", "a", "b")
    policy = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 50000 } }"
    model = ScriptedModel(tmp_path / "models", "c", policy, memory_bytes="100MB")
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    model.hold("load")
    status, text = Asker(server, model).ask(1).answer()
    assert (status, "Request timeout expired" in text) == (503, True)
    model.release()
    wait_until(lambda: demand_loads(server, "c") == [1])
