"""Ensembles with decoupled models: each response goes its way through the later steps, and the stream ends once."""

from __future__ import annotations

import queue
from pathlib import Path

import ensembles
import model_folders
import numpy as np
import pytest
import requests
import tritonclient.grpc
from server_process import ServerProcess

ADDING = """
        return [answer(S=array(request, "I") + array(request, "N") * 10) for request in requests]
"""
ADDING_CONFIG = f"""
input [ {ensembles.tensor("I", "INT32", "1")}, {ensembles.tensor("N", "INT32", "1")} ]
output [ {ensembles.tensor("S", "INT32", "1")} ]
instance_group {{ count: 2 kind: KIND_CPU }}
"""


def write_models(repository: Path) -> None:
    ensembles.counting(repository)
    ensembles.python_model(repository, "adding", ADDING, ADDING_CONFIG)
    number, single = ensembles.tensor("N", "INT32", "1"), ensembles.tensor("I", "INT32", "1")
    count = ensembles.step("counting", {"N": "N"}, {"I": "I"})
    again = ensembles.step("counting", {"N": "I"}, {"I": "J"})
    add = ensembles.step("adding", {"I": "I", "N": "N"}, {"S": "S"})
    total = ensembles.tensor("S", "INT32", "1")
    model_folders.write_model(repository, "stream", ensembles.config([number], [total, single], [count, add], 0))
    model_folders.write_model(repository, "nested", ensembles.config(
        [number], [total], [ensembles.step("stream", {"N": "N"}, {"S": "S"})], 0
    ))  # fmt: skip
    twice = ensembles.config([number], [single, ensembles.tensor("J", "INT32", "1")], [count, again], 0)
    model_folders.write_model(repository, "twice", twice)
    narrow = ensembles.config([number], [total], [count, add], 0, inside="max_inflight_requests: 1")
    model_folders.write_model(repository, "narrow", narrow)


@pytest.fixture(scope="module")
def server(serve_for_module, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_models(repository)
    return serve_for_module(repository)


def stream(server: ServerProcess, model: str, number: int, outputs: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Return the responses to one request by a gRPC stream, as the values of `outputs`; the end is that of the protocol."""
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    tensor = tritonclient.grpc.InferInput("N", [1], "INT32")
    tensor.set_data_from_numpy(np.array([number], np.int32))
    wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in outputs]
    client.async_stream_infer(model, [tensor], outputs=wanted, enable_empty_final_response=True)
    got = []
    while True:
        result, error = answers.get(timeout=10)
        assert error is None, error
        response = result.get_response()
        if response.outputs:
            got.append(tuple(int(result.as_numpy(name)[0]) for name in outputs))
        if response.parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    assert answers.empty()
    return got


@pytest.mark.parametrize("number", [0, 1, 5, 100])
def test_each_response_goes_through_the_steps_behind(server: ServerProcess, number: int) -> None:
    got = stream(server, "stream", number, ("S", "I"))
    assert sorted(got) == [(index + 10 * number, index) for index in range(number)]


def test_an_output_of_the_decoupled_step_itself_comes_in_its_order(server: ServerProcess) -> None:
    assert stream(server, "stream", 5, ("I",)) == [(index,) for index in range(5)]


def test_a_decoupled_ensemble_in_an_ensemble(server: ServerProcess) -> None:
    assert sorted(stream(server, "nested", 3, ("S",))) == [(30,), (31,), (32,)]


def test_a_decoupled_step_behind_a_decoupled_step(server: ServerProcess) -> None:
    assert sorted(stream(server, "twice", 4, ("I", "J"))) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_with_one_request_in_flight_a_step_all_responses_come_in_order(server: ServerProcess) -> None:
    assert stream(server, "narrow", 50, ("S",)) == [(500 + index,) for index in range(50)]


def test_a_call_that_takes_one_response_is_refused(server: ServerProcess) -> None:
    body = {"inputs": [{"name": "N", "shape": [1], "datatype": "INT32", "data": [2]}]}
    assert server.infer("stream", body).status_code == 501
    config = requests.get(f"{server.url}/v2/models/nested/config").json()
    assert config["model_transaction_policy"] == {"decoupled": True}


def test_generate_stream(server: ServerProcess) -> None:
    answer = requests.post(f"{server.url}/v2/models/stream/generate_stream", json={"N": 3})
    assert answer.status_code == 200
    assert answer.text.count('"S":3') == 3
