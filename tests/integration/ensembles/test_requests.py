"""What becomes of requests to an ensemble: errors of steps, what a step lacks, what goes along, clients that leave."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ensembles
import model_folders
import pytest
import requests
import scripted_models
from asking import Asked
from raw_http import infer
from server_process import ServerProcess
from waiting import wait_until

FAILING = """
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no such thing", pb_utils.TritonError.NOT_FOUND))
                for _ in requests]
"""
HALF = """
        return [answer(A=array(request, "X")) for request in requests]
"""
HALF_CONFIG = f"""
max_batch_size: 8
input [ {ensembles.tensor("X")} ]
output [ {ensembles.tensor("A")}, {ensembles.tensor("B")} ]
"""
EITHER = """
        answers = []
        for request in requests:
            given = [tensor.name() for tensor in request.inputs()]
            answers.append(answer(Y=np.array([[len(given)]], np.float32)))
        return answers
"""
EITHER_CONFIG = """
max_batch_size: 8
input [
  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "W" data_type: TYPE_FP32 dims: [ -1 ] optional: true }
]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
NAMING = """
        said = {"sequence_id": 7, "sequence_start": True, "mood": "good"}
        return [answer(said, Y=array(request, "X")) for request in requests]
"""
TELLING = """
        import json
        answers = []
        for request in requests:
            said = {"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                    "priority": request.priority(), "timeout": request.timeout(),
                    "parameters": json.loads(request.parameters())}
            answers.append(answer(SAID=np.array([[json.dumps(said).encode()]], object)))
        return answers
"""
ASKING = """
        answers = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name=MODEL, requested_output_names=["Y"], inputs=[tensor])
            response = call.exec()
            if response.has_error():
                answers.append(pb_utils.InferenceResponse(error=response.error()))
            else:
                answers.append(answer(Y=pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()))
        return answers
"""
ECHO_CONFIG = f"max_batch_size: 8 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('Y')} ]"
TELLING_CONFIG = f"max_batch_size: 8 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('SAID', 'STRING', '1')} ]"


def write_models(repository: Path) -> None:
    model_folders.identity(repository)
    ensembles.python_model(repository, "failing", FAILING, ECHO_CONFIG)
    ensembles.python_model(repository, "half", HALF, HALF_CONFIG)
    ensembles.python_model(repository, "either", EITHER, EITHER_CONFIG)
    ensembles.python_model(repository, "naming", NAMING, ECHO_CONFIG)
    ensembles.python_model(repository, "telling", TELLING, TELLING_CONFIG)
    x, y, said = ensembles.tensor("X"), ensembles.tensor("Y"), ensembles.tensor("SAID", "STRING", "1")
    ensembles.chain(repository, "fails", ["echo", "failing", "echo"])
    ensembles.chain(repository, "outer", ["echo", "fails"])
    ensembles.python_model(repository, "asks", ASKING.replace("MODEL", '"echoes"'), ECHO_CONFIG)
    ensembles.python_model(repository, "asks_itself", ASKING.replace("MODEL", '"circle"'), ECHO_CONFIG)
    ensembles.chain(repository, "echoes", ["echo", "echo"])
    ensembles.chain(repository, "asking", ["asks", "echo"])
    ensembles.chain(repository, "circle", ["echo", "asks_itself"])
    outputs = [ensembles.tensor("A"), ensembles.tensor("B")]
    model_folders.write_model(repository, "halves", ensembles.config(
        [x], outputs, [ensembles.step("half", {"X": "X"}, {"A": "A", "B": "B"})]
    ))  # fmt: skip
    passing = [
        ensembles.step("half", {"X": "X"}, {"A": "t1", "B": "t2"}),
        ensembles.step("either", {"X": "t1", "W": "t2"}, {"Y": "Y"}),
    ]
    model_folders.write_model(repository, "passing", ensembles.config([x], [ensembles.tensor("Y", dims="1")], passing))
    given = ensembles.tensor("W").replace("dims", "optional: true dims")
    optional = [ensembles.step("either", {"X": "X", "W": "W"}, {"Y": "Y"})]
    model_folders.write_model(repository, "optional", ensembles.config([x, given], [ensembles.tensor("Y", dims="1")], optional))
    tell = [ensembles.step("echo", {"X": "X"}, {"Y": "t"}), ensembles.step("telling", {"X": "t"}, {"SAID": "SAID"})]
    model_folders.write_model(repository, "tells", ensembles.config([x], [said], tell))
    tell = [ensembles.step("naming", {"X": "X"}, {"Y": "Y"}), ensembles.step("telling", {"X": "Y"}, {"SAID": "SAID"})]
    model_folders.write_model(repository, "names", ensembles.config([x], [said, y], tell))


@pytest.fixture(scope="module")
def server(serve_for_module, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_models(repository)
    return serve_for_module(repository)


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
