"""Ensembles together with deadlines, model memory limits, namespaces, traffic between versions, and ONNX models over gRPC."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import controlled_models
import ensembles
import model_folders
import numpy as np
import onnx_models
import pytest
import requests
import scripted_models
import tritonclient.grpc
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException
from waiting import wait_until


def ask(server: ServerProcess, name: str) -> requests.Response:
    return server.infer(name, {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})


def grpc_client(server: ServerProcess) -> tritonclient.grpc.InferenceServerClient:
    return server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))


def test_onnx_models_and_a_python_model_over_grpc(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    onnx_models.save(onnx_models.scaled(2.0), repository / "doubled/1/model.onnx")
    tensor, step = ensembles.tensor, ensembles.step
    code = """
        return [answer(Y=array(request, "X") + array(request, "W")) for request in requests]
"""
    io = f"max_batch_size: 8 input [ {tensor('X')}, {tensor('W')} ] output [ {tensor('Y')} ]"
    ensembles.python_model(repository, "sum", code, io)
    steps = [
        step("doubled", {"x": "IN"}, {"y": "twice"}),
        step("doubled", {"x": "twice"}, {"y": "four"}),
        step("sum", {"X": "twice", "W": "four"}, {"Y": "OUT"}),
    ]
    text = ensembles.config([tensor("IN", dims="2")], [tensor("OUT", dims="2")], steps, 4)
    model_folders.write_model(repository, "ens", text)
    server = serve(repository)
    values = np.random.default_rng(0).random((3, 2), np.float32)
    sent = tritonclient.grpc.InferInput("IN", [3, 2], "FP32")
    sent.set_data_from_numpy(values)
    np.testing.assert_allclose(grpc_client(server).infer("ens", [sent]).as_numpy("OUT"), values * 6)


def test_a_deadline_reaches_the_step_that_runs_and_no_other_runs(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    first, second = (scripted_models.ScriptedModel(repository, name) for name in ("first", "second"))
    ensembles.chain(repository, "ens", ["first", "second"])
    server = serve(repository, environment=scripted_models.ENVIRONMENT)
    first.hold(1)
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with pytest.raises(InferenceServerException) as caught:
        grpc_client(server).infer("ens", [tensor], client_timeout=0.5)
    assert "DEADLINE" in str(caught.value.status())
    wait_until(lambda: server.metric("nv_inference_request_failure", model="first", reason="CANCELED") == 1)
    first.release()
    assert ask(server, "ens").status_code == 200
    assert second.executions() == [[1.0]]


def test_models_of_steps_come_and_go_with_a_memory_limit(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    size = 'parameters { key: "memory_bytes" value { string_value: "600" } }'
    for name in ("one", "two", "three"):
        model_folders.identity(repository, name, more=size)
    ensembles.chain(repository, "a_ensemble", ["one", "two", "three"])
    server = serve(repository, "--model-memory-limit=1000")
    assert [ask(server, "a_ensemble").status_code for _ in range(3)] == [200] * 3
    assert sum(server.metric("naiad_model_evictions_total", model=name) for name in ("one", "two", "three")) > 3


def test_an_ensemble_of_a_namespace_runs_the_models_of_its_own(tmp_path: Path, serve) -> None:
    for number in (1, 2):
        repository = tmp_path / f"models{number}"
        controlled_models.ValueModel(repository, "ver", value=number)
        ensembles.chain(repository, f"ens{number}", ["ver"], 4)
    server = serve(tmp_path / "models1", tmp_path / "models2", "--model-namespacing=true")
    answers = [ask(server, f"ens{number}").json()["outputs"][0]["data"] for number in (1, 2)]
    assert answers == [[1.0], [2.0]]


def test_versions_share_the_requests_of_an_ensemble_as_those_of_clients(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model = controlled_models.ValueModel(repository)
    model.write_version(2, 2)
    model.write_config("version_policy { all { } }")
    ensembles.chain(repository, "ens", ["ver"], 4)
    fixed = ensembles.step("ver", {"X": "X"}, {"Y": "Y"}, version=1)
    text = ensembles.config([ensembles.tensor("X")], [ensembles.tensor("Y")], [fixed], 4)
    model_folders.write_model(repository, "fixed", text)
    server = serve(repository)
    assert ask(server, "ens").json()["outputs"][0]["data"] == [2.0]
    changed = requests.post(f"{server.url}/v2/models/ver/traffic", json={"weights": {"1": 1}})
    assert changed.status_code == 200, changed.text
    assert [ask(server, name).json()["outputs"][0]["data"] for name in ("ens", "fixed")] == [[1.0], [1.0]]


def test_a_model_in_flight_may_ask_others_while_the_server_ends(tmp_path: Path, serve) -> None:
    repository, gate, begun = tmp_path / "models", tmp_path / "gate", tmp_path / "begun"
    code = f"""
        open({str(begun)!r}, "w").close()
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.01)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        calls = [pb_utils.InferenceRequest(model_name="ver", requested_output_names=["Y"], inputs=[each]) for each in tensors]
        return [answer(Y=call.exec().output_tensors()[0].as_numpy()) for call in calls]
"""
    controlled_models.ValueModel(repository, value=5)
    io = f"max_batch_size: 4 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('Y')} ]"
    ensembles.python_model(repository, "asks", code, io)
    ensembles.chain(repository, "ens", ["asks", "ver"], 4)
    server = serve(repository)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, "ens")
        wait_until(begun.exists, what="the first step")
        server.process.terminate()
        wait_until(lambda: requests.get(f"{server.url}/v2/health/ready").status_code == 503, what="the end begins")
        gate.touch()
        assert answer.result().json()["outputs"][0]["data"] == [5.0]
    assert server.wait() == 0
