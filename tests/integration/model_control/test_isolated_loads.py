"""With `--isolate-load` a model is first loaded in a process of its own: what that does to the process harms nothing else."""

from __future__ import annotations

import signal

import onnx_models
import psutil
import pytest
import requests
from controlled_models import http_ask
from model_folders import identity
from process_facts import facts, is_alive
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"
ISOLATE = "--isolate-load=true"

DEATHS = {
    "segfault": r"was killed by SIGSEGV",
    "abort": r"was killed by SIGABRT",
    "exit": r"exited with code 3; the end of its output:\nthe licence server said no",
    "leave_a_child": r"exited with code 3",
}


def children(server) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


@pytest.mark.parametrize("what", DEATHS)
def test_a_file_that_ends_its_process_is_refused_and_the_server_goes_on(tmp_path, serve, http_control, what):
    model = ScriptedModel(tmp_path / "models", "hostile", at_load=what)
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", EXPLICIT, ISOLATE, "--load-model=echo", environment=ENVIRONMENT)
    client = http_control(server)
    with pytest.raises(
        InferenceServerException, match=rf"the process that tried it first \(--isolate-load\), pid \d+, {DEATHS[what]}"
    ):
        client.load("hostile")
    [(_, _, state, reason)] = client.index("hostile")
    assert (state, "--isolate-load" in reason) == ("UNAVAILABLE", True)
    assert http_ask(server, "echo")() == 1
    [tried] = model.loaders()
    assert tried != server.pid
    wait_until(lambda: children(server) == [])


def test_a_good_file_is_loaded_twice_and_served_by_the_server(tmp_path, serve):
    model = ScriptedModel(tmp_path / "models", "good", more="instance_group [{ count: 3 }]")
    server = serve(tmp_path / "models", ISOLATE, environment=ENVIRONMENT)
    tried, *loaded = model.loaders()
    assert loaded == [server.pid] * 3
    assert not is_alive(tried)
    assert http_ask(server, "good")() == 1


def test_a_wrong_file_has_the_same_reason_as_without(tmp_path, serve, http_control):
    onnx_models.save(onnx_models.identity("FP32", ["n", 1]), tmp_path / "models" / "right" / "1" / "model.onnx")
    wrong = tmp_path / "models" / "wrong" / "1" / "model.onnx"
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"no model")
    indexes = [http_control(serve(tmp_path / "models", "--exit-on-error=false", *flags)).index() for flags in ([], [ISOLATE])]
    assert indexes[0] == indexes[1]
    assert [state for _, _, state, _ in indexes[1]] == ["READY", "UNAVAILABLE"]


def test_an_override_of_the_config_is_what_is_tried(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "model", at_load="exit")
    server = serve(tmp_path / "models", EXPLICIT, ISOLATE, environment=ENVIRONMENT)
    config = (
        '{"backend": "scripted", "max_batch_size": 8, "parameters": {"control": {"string_value": "%s"}},'
        ' "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],'
        ' "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}]}'
    ) % (tmp_path / "models-control" / "model")
    http_control(server).load("model", config=config)
    assert len(model.loaders()) == 2
    assert http_ask(server, "model")() == 1


def test_the_process_is_the_first_to_end_when_memory_runs_out(tmp_path, serve, http_control):
    ScriptedModel(tmp_path / "models", "says", at_load="say_who")
    server = serve(tmp_path / "models", EXPLICIT, ISOLATE, environment=ENVIRONMENT)
    with pytest.raises(InferenceServerException, match="oom_score_adj is 1000"):
        http_control(server).load("says")


def test_a_trial_that_hangs_is_ended_after_the_time_for_loads(tmp_path, serve, http_control):
    model = ScriptedModel(tmp_path / "models", "held")
    server = serve(tmp_path / "models", EXPLICIT, ISOLATE, "--model-load-timeout-secs=2", environment=ENVIRONMENT)
    model.hold("load")
    with pytest.raises(InferenceServerException, match=r"preparing model 'held' has taken 2 s .* was given up"):
        http_control(server).load("held")
    wait_until(lambda: children(server) == [])
    # Nothing hangs in the server itself: the next load finds its thread free.
    wait_until(lambda: "has ended after it was given up" in server.log())
    model.release()
    http_control(server).load("held")
    assert http_ask(server, "held")() == 1


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_trial_ends_with_the_server(tmp_path, end):
    model = ScriptedModel(tmp_path / "models", "held")
    model.hold("load")
    server = ServerProcess(tmp_path / "models", ISOLATE, environment=ENVIRONMENT).wait_listening()
    wait_until(model.loaders, what="the trial")
    assert requests.get(f"{server.url}/v2/health/live", timeout=5).status_code == 200
    server.stop(end)
    [tried] = model.loaders()
    wait_until(lambda: not is_alive(tried), what="the end of the trial")


@pytest.mark.timeout(60)
def test_rounds_of_good_and_deadly_loads_leave_no_file_thread_or_process(tmp_path, serve, http_control):
    good = ScriptedModel(tmp_path / "models", "good")
    deadly = ScriptedModel(tmp_path / "models", "deadly", at_load="leave_a_child")
    server = serve(tmp_path / "models", EXPLICIT, ISOLATE, "--model-load-thread-count=1", environment=ENVIRONMENT)
    client = http_control(server)

    def round_of_loads() -> None:
        client.load("good")
        client.unload("good")
        with pytest.raises(InferenceServerException, match="--isolate-load"):
            client.load("deadly")
        wait_until(lambda: client.states("good") == {"1": "UNAVAILABLE"})

    round_of_loads()
    before = facts(server.pid)
    for _ in range(3):
        round_of_loads()
    after = facts(server.pid)
    assert (after.descriptors, after.threads, after.children) == (before.descriptors, before.threads, before.children)
    assert (len(good.loaders()), len(deadly.loaders())) == (8, 4)
