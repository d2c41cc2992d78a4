"""Ensembles over HTTP and gRPC: any graph, any of its outputs, batches and single items, ensembles in ensembles."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ensembles
import model_folders
import numpy as np
import onnx_models
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from server_process import ServerProcess


def write_models(repository: Path) -> None:
    model_folders.identity(repository)
    model_folders.identity(repository, "single", max_batch_size=0)
    onnx_models.save(onnx_models.scaled(2.0), repository / "doubled/1/model.onnx")
    onnx_models.save(onnx_models.sum_and_difference(("n", "m")), repository / "sums/1/model.onnx")
    feeding = {"X": "X"}
    fan_out = [
        ensembles.step("echo", feeding, {"Y": "MID"}),
        ensembles.step("echo", {"X": "MID"}, {"Y": "A"}),
        ensembles.step("echo", {"X": "MID"}, {"Y": "B"}),
    ]
    x, outputs = ensembles.tensor("X"), [ensembles.tensor(name) for name in ("A", "B", "MID")]
    model_folders.write_model(repository, "ens", ensembles.config([x], outputs, fan_out))
    ensembles.chain(repository, "outer", ["echo", "inner", "echo"])
    ensembles.chain(repository, "inner", ["echo", "echo"])
    ensembles.chain(repository, "mixed", ["echo", "single", "echo"])
    ensembles.chain(repository, "alone", ["single", "echo"], max_batch_size=0)


@pytest.fixture(scope="module")
def server(serve_for_module, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_models(repository)
    return serve_for_module(repository)


def ask(server: ServerProcess, model: str, data: list[list[float]], outputs: tuple[str, ...] = ()) -> requests.Response:
    shape = [len(data), len(data[0])]
    body = {"inputs": [{"name": "X", "shape": shape, "datatype": "FP32", "data": data}], "id": "one"}
    if outputs:
        body["outputs"] = [{"name": name} for name in outputs]
    return server.infer(model, body)


SUBSETS = [names for count in (1, 2, 3) for names in itertools.permutations(("A", "B", "MID"), count)]


@pytest.mark.parametrize("names", SUBSETS, ids="-".join)
def test_any_of_the_outputs_in_any_order(server: ServerProcess, names: tuple[str, ...]) -> None:
    answer = ask(server, "ens", [[1, 2]], names)
    assert answer.status_code == 200, answer.text
    assert [output["name"] for output in answer.json()["outputs"]] == list(names)
    assert all(output["data"] == [1.0, 2.0] and output["shape"] == [1, 2] for output in answer.json()["outputs"])
    assert "parameters" not in answer.json()
    assert (answer.json()["id"], answer.json()["model_name"]) == ("one", "ens")


def test_any_of_the_outputs_under_load_over_http_and_grpc(server: ServerProcess) -> None:
    def over_http(names: tuple[str, ...]) -> bool:
        answer = ask(server, "ens", [[1, 2]], names)
        return answer.status_code == 200 and {output["name"] for output in answer.json()["outputs"]} == set(names)

    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    tensor = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))

    def over_grpc(names: tuple[str, ...]) -> bool:
        answer = client.infer("ens", [tensor], outputs=[tritonclient.grpc.InferRequestedOutput(name) for name in names])
        return [output.name for output in answer.get_response().outputs] == list(names)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(over_http, SUBSETS * 10))
        assert all(pool.map(over_grpc, SUBSETS * 10))


def test_an_unknown_output_is_named(server: ServerProcess) -> None:
    answer = ask(server, "ens", [[1, 2]], ("A", "C"))
    assert answer.status_code == 400
    assert "'C'" in answer.json()["error"]


def test_an_ensemble_in_an_ensemble(server: ServerProcess) -> None:
    answer = ask(server, "outer", [[1, 2], [3, 4]])
    assert answer.json()["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]}]


def test_a_batch_of_one_passes_through_a_model_that_does_not_batch(server: ServerProcess) -> None:
    assert ask(server, "mixed", [[1, 2]]).json()["outputs"][0]["shape"] == [1, 2]
    refused = ask(server, "mixed", [[1, 2], [3, 4]])
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("in ensemble 'mixed', [request id: one] unexpected shape for input 'X'")


def test_an_item_passes_through_a_model_that_batches(server: ServerProcess) -> None:
    body = {"inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    assert server.infer("alone", body).json()["outputs"][0]["shape"] == [2]


def test_the_metadata_of_an_ensemble(server: ServerProcess) -> None:
    metadata = requests.get(f"{server.url}/v2/models/ens").json()
    assert (metadata["platform"], metadata["versions"]) == ("ensemble", ["1"])
    assert [output["name"] for output in metadata["outputs"]] == ["A", "B", "MID"]
    assert requests.get(f"{server.url}/v2/models/ens/ready").status_code == 200
    config = requests.get(f"{server.url}/v2/models/ens/config").json()
    assert [step["model_name"] for step in config["ensemble_scheduling"]["step"]] == ["echo"] * 3


def test_members_count_and_so_does_the_ensemble(server: ServerProcess) -> None:
    def success(model: str) -> int:
        statistics = requests.get(f"{server.url}/v2/models/{model}/stats").json()["model_stats"][0]
        return statistics["inference_stats"]["success"]["count"]

    before = success("inner"), success("outer"), success("echo")
    ask(server, "outer", [[1, 2]])
    assert (success("inner"), success("outer"), success("echo")) == (before[0] + 1, before[1] + 1, before[2] + 4)


def test_the_times_of_an_ensemble_are_the_sums_of_its_steps(server: ServerProcess) -> None:
    def times(model: str) -> dict[str, int]:
        statistics = requests.get(f"{server.url}/v2/models/{model}/stats").json()["model_stats"][0]
        phases = ("queue", "compute_input", "compute_infer", "compute_output")
        counts = {name: statistics[name] for name in ("inference_count", "execution_count")}
        return {name: statistics["inference_stats"][name]["ns"] for name in phases} | counts

    before, echo_before = times("ens"), times("echo")
    for _ in range(3):
        assert ask(server, "ens", [[1, 2], [3, 4]]).status_code == 200
    after, echo_after = times("ens"), times("echo")
    grown = {name: after[name] - before[name] for name in after}
    assert (grown.pop("inference_count"), grown.pop("execution_count")) == (6, 3)
    assert grown == {name: echo_after[name] - echo_before[name] for name in grown}


def test_binary_tensors_with_tritons_client(server: ServerProcess) -> None:
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    values = np.arange(200_000, dtype=np.float32).reshape(2, -1)
    tensor = tritonclient.http.InferInput("X", values.shape, "FP32")
    tensor.set_data_from_numpy(values)
    answer = client.infer("outer", [tensor])
    assert np.array_equal(answer.as_numpy("Y"), values)
