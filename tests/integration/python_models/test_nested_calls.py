"""Models that call models: errors reach the caller's client, and whatever the caller does, everything is given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http
from python_models import IO, Config, source, write_python_model
from python_models.batched import ask, tensor
from python_models.repositories import ANY_ROW, ONE_NUMBER
from server_process import ServerProcess
from waiting import wait_until

WAYS = ("plain", "raises_with_tensors_in_hand", "keeps_the_last", "async_calls", "drops_an_iterator", "calls_nobody")
LIMIT_BYTES = 20 * 1024 * 1024


def write_callers(repository: Path) -> Path:
    write_python_model(repository, "picky", source("failing"))
    write_python_model(repository, "repeat", source("repeat"), Config(ANY_ROW, ONE_NUMBER, 0, is_decoupled=True))
    for way in WAYS:
        parameter = f'parameters {{ key: "way" value {{ string_value: "{way}" }} }}'
        write_python_model(repository, f"caller_{way}", source("caller"), Config((IO("X"),), (IO("Y"),), 8, parameter))
    return repository


@pytest.fixture
def server(tmp_path, serve) -> ServerProcess:
    return serve(write_callers(tmp_path / "models"))


def memory_bytes(server: ServerProcess) -> int:
    """Return what server and workers hold of their own; memory that they share counts once."""
    process = psutil.Process(server.pid)
    return sum(each.memory_full_info().pss for each in [process, *process.children(recursive=True)])


def named_shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def send(server: ServerProcess, way: str, count: int) -> None:
    """Send `count` requests of 1000 floats of which every second is negative, and check each answer."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        for number in range(count):
            x = np.full((1, 1000), number + 1, np.float32) * (-1) ** number
            item = tritonclient.http.InferInput("X", x.shape, "FP32")
            item.set_data_from_numpy(x)
            if number % 2:
                with pytest.raises(tritonclient.utils.InferenceServerException, match="below zero"):
                    client.infer(f"caller_{way}", [item])
            else:
                assert (client.infer(f"caller_{way}", [item]).as_numpy("Y").ravel()[0], way) == (x.flat[0], way)


def check_memory(server: ServerProcess, ways: tuple[str, ...], warm_up: int, count: int) -> None:
    names = named_shared_memory()
    for way in ways:
        send(server, way, warm_up)
    before = memory_bytes(server)
    for way in ways:
        send(server, way, count)
    wait_until(lambda: all(server.metric("naiad_running_requests", model=f"caller_{way}") == 0 for way in ways))
    assert memory_bytes(server) <= before + LIMIT_BYTES
    assert named_shared_memory() <= names
    assert server.stop() == 0


def test_errors_in_calls_reach_the_client_and_leave_no_memory(server):
    check_memory(server, WAYS, 40, 100)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_many_errors_in_calls_leave_no_memory(server):
    check_memory(server, WAYS, 2_000, 20_000)


def test_calls_count_in_the_statistics_of_the_model_that_is_called(server):
    send(server, "plain", 10)
    assert server.metric("nv_inference_request_success", model="picky") == 5
    assert server.metric("nv_inference_request_failure", model="picky", reason="BACKEND") == 5
    assert server.metric("nv_inference_request_failure", model="caller_plain", reason="BACKEND") == 5


def test_a_call_that_would_wait_for_its_caller_for_ever_is_refused_and_the_model_serves_on(tmp_path, serve):
    code = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X")) for request in requests]
    def answer(self, x):
        if x.as_numpy().flat[0] == 1:
            inner = pb_utils.InferenceRequest(model_name="selfish", inputs=[x], requested_output_names=["Y"])
            response = inner.exec()
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
"""
    write_python_model(tmp_path / "models", "selfish", code)
    server = serve(tmp_path / "models")
    status, text = ask(server, "selfish", tensor("X", "FP32", (1, 1), 1))
    assert (status, "wait for ever" in text, "more instances" in text) == (503, True, True), text
    wait_until(lambda: server.metric("naiad_running_requests", model="selfish") == 0, what="nothing runs")
    assert server.metric("nv_inference_pending_request_count", model="selfish") == 0
    assert ask(server, "selfish", tensor("X", "FP32", (1, 1), 2)) == (200, {"Y": [2]})
