"""What becomes of requests to an ensemble: errors of steps, what a step lacks, what goes along, clients that leave."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ensemble_models
import ensembles
import model_folders
import pytest
import requests
import scripted_models
from asking import Asked
from raw_http import infer
from server_process import ServerProcess
from waiting import wait_until


@pytest.fixture(scope="module")
def server(serve_for_module, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    return serve_for_module(ensemble_models.write_models(repository))


def ask(server: ServerProcess, model: str, **more: object) -> requests.Response:
    inputs = [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]
    return server.infer(model, {"inputs": inputs + more.pop("inputs", []), **more})  # type: ignore[operator]


def said(answer: requests.Response) -> dict:
    assert answer.status_code == 200, answer.text
    texts = {output["name"]: output["data"] for output in answer.json()["outputs"]}
    return json.loads(texts["SAID"][0])


def test_the_error_of_a_step_is_the_requests(server: ServerProcess) -> None:
    answer = ask(server, "fails")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("in ensemble 'fails', ")
    assert "no such thing" in answer.json()["error"]
    assert ask(server, "outer").json()["error"].startswith("in ensemble 'outer', in ensemble 'fails', ")


def test_a_failed_ensemble_counts_as_other(server: ServerProcess) -> None:
    before = server.metric("nv_inference_request_failure", model="fails", reason="OTHER")
    ask(server, "fails")
    assert server.metric("nv_inference_request_failure", model="fails", reason="OTHER") == before + 1


def test_an_output_that_a_step_leaves_out_is_missed_only_where_it_is_wanted(server: ServerProcess) -> None:
    alone = ask(server, "halves", outputs=[{"name": "A"}])
    assert alone.status_code == 200, alone.text
    both = ask(server, "halves")
    assert both.status_code == 500
    expected = (
        "in ensemble 'halves', unexpected deadlock, at least one output is not set while no more ensemble steps can be made"
    )
    assert expected == both.json()["error"]


def test_what_a_step_leaves_out_is_absent_for_an_optional_input(server: ServerProcess) -> None:
    assert ask(server, "passing").json()["outputs"][0]["data"] == [1.0]


def test_an_optional_input_of_the_ensemble_passes_through_or_is_absent(server: ServerProcess) -> None:
    assert ask(server, "optional").json()["outputs"][0]["data"] == [1.0]
    second = {"name": "W", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    assert ask(server, "optional", inputs=[second]).json()["outputs"][0]["data"] == [2.0]


def test_what_the_client_says_of_its_request_holds_for_the_steps(server: ServerProcess) -> None:
    parameters = {"sequence_id": 5, "sequence_start": True, "priority": 2, "timeout": 9000000, "mine": "yes"}
    found = said(ask(server, "tells", id="one", parameters=parameters))
    assert found == {
        "id": "one",
        "correlation": 5,
        "flags": 1,
        "priority": 2,
        "timeout": 9000000,
        "parameters": {"mine": "yes"},
    }


def test_a_step_may_name_another_sequence_for_those_behind_it(server: ServerProcess) -> None:
    answer = ask(server, "names")
    assert (said(answer)["correlation"], said(answer)["flags"]) == (7, 1)
    assert answer.json()["parameters"] == {"sequence_id": 7, "sequence_start": True, "sequence_end": False, "mood": "good"}


def test_a_python_model_may_ask_an_ensemble_and_be_a_step_of_another(server: ServerProcess) -> None:
    assert ask(server, "asking").json()["outputs"][0]["data"] == [1.0]


def test_a_step_that_asks_its_own_ensemble_gets_an_error_and_waits_not_for_ever(server: ServerProcess) -> None:
    answer = ask(server, "circle")
    assert answer.status_code >= 500
    assert "would wait for ever" in answer.json()["error"]


def test_the_gauge_of_an_ensemble_follows_its_open_requests(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model_folders.identity(repository, "fast")
    slow = scripted_models.ScriptedModel(repository, "slow")
    ensembles.chain(repository, "ens", ["fast", "slow", "fast"])
    server = serve(repository, environment=scripted_models.ENVIRONMENT)
    slow.hold(1)

    def pending(model: str) -> float:
        return server.metric("nv_inference_pending_request_count", model=model)

    assert [pending(model) for model in ("ens", "slow", "fast")] == [0, 0, 0]
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(ask, server, "ens") for _ in range(5)]
        wait_until(lambda: pending("slow") == 4, what="four requests queued at the slow step")
        assert (pending("ens"), pending("fast")) == (5, 0)
        slow.release()
        assert {answer.result().status_code for answer in answers} == {200}
    assert [pending(model) for model in ("ens", "slow", "fast")] == [0, 0, 0]


def test_a_client_that_leaves_takes_the_next_steps_with_it(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    first, second = (scripted_models.ScriptedModel(repository, name) for name in ("first", "second"))
    ensembles.chain(repository, "ens", ["first", "second"])
    server = serve(repository, environment=scripted_models.ENVIRONMENT)
    first.hold(1)
    asked = Asked(server, infer("ens", [1], [1, 1]))
    wait_until(lambda: first.ran(1), what="the first step")
    asked.hang_up()
    wait_until(lambda: server.metric("nv_inference_request_failure", model="ens", reason="CANCELED") == 1, what="the count")
    first.release()
    assert ask(server, "ens").status_code == 200
    assert second.executions() == [[1.0]]


def test_what_is_in_flight_is_answered_when_the_server_ends(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    first, _ = (scripted_models.ScriptedModel(repository, name) for name in ("first", "second"))
    ensembles.chain(repository, "ens", ["first", "second"])
    server = serve(repository, environment=scripted_models.ENVIRONMENT)
    first.hold(1)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, "ens")
        wait_until(lambda: first.ran(1), what="the first step")
        server.process.terminate()
        wait_until(lambda: requests.get(f"{server.url}/v2/health/ready").status_code == 503, what="the end begins")
        first.release()
        assert answer.result().status_code == 200
    assert server.wait() == 0
