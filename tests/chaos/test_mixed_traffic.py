"""After a mix of good, bad, aborted and half-sent requests the server still serves, and holds no more than before."""

from __future__ import annotations

import pytest
import requests
from chaos_clients import ACTIONS, Chaos
from model_folders import identity
from process_facts import facts
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

CLIENTS = 12
WARM_UP_S = 1.5
MAY_GROW_BYTES = 40 * 1024 * 1024
GAUGES = ("nv_inference_pending_request_count", "naiad_running_requests")
MODELS = ("echo", "slow", "failing")


@pytest.fixture
def server(tmp_path, serve):
    repository = tmp_path / "models"
    identity(repository, "echo")
    identity(repository, "slow", delay_ms=2, more="dynamic_batching { }")
    ScriptedModel(repository, "failing", fail_on="13")
    return serve(repository, environment=ENVIRONMENT)


def is_at_rest(server) -> bool:
    return all(server.metric(gauge, model=model) == 0 for gauge in GAUGES for model in MODELS)


def survive(server, seconds: float) -> None:
    # Threads and helpers are made when they are first needed, and stay: they belong to the base.
    warm_up = Chaos(server.host_port, CLIENTS, seed=1)
    warm_up.act_once_each()
    warm_up.run(WARM_UP_S)
    wait_until(lambda: is_at_rest(server))
    wait_until(lambda: facts(server.pid).connections == 0)
    base = facts(server.pid)
    chaos = Chaos(server.host_port, CLIENTS, seed=2)
    chaos.run(seconds)
    assert [*warm_up.faults, *chaos.faults] == []
    assert set(warm_up.done + chaos.done) == {action.__name__ for action in ACTIONS}
    wait_until(lambda: is_at_rest(server))
    wait_until(lambda: facts(server.pid).connections == 0)
    assert server.process.poll() is None

    def left() -> tuple[int, int]:
        now = facts(server.pid)
        return now.descriptors - base.descriptors, now.children - base.children

    # The connection of the last question about metrics may still be there, here as in the base.
    wait_until(lambda: max(left()) <= 0, what="descriptors and children to be no more than those of the base")
    now = facts(server.pid)
    assert now.threads <= base.threads + 1
    assert now.resident_bytes - base.resident_bytes < MAY_GROW_BYTES
    for model in MODELS:
        body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
        assert server.infer(model, body).status_code == 200
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200
    assert server.stop() == 0
    assert "Traceback" not in server.log()
    assert "dropped without an answer" not in server.log()


def test_a_few_seconds_of_chaos_leave_nothing_behind(server):
    survive(server, 3)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_minutes_of_chaos_leave_nothing_behind(server):
    survive(server, 120)
