"""Requests that a Python model wants again, with those that came meanwhile."""

from __future__ import annotations

import queue

import numpy as np
import pytest
import sequence_models
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from waiting import wait_until

STRATEGIES = pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])


def count_of(value: float) -> list[triton.InferInput]:
    tensor = triton.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
    return [tensor]


@STRATEGIES
def test_a_stream_gets_a_response_of_each_step(tmp_path, serve, strategy):
    sequence_models.countdown(tmp_path, strategy, is_decoupled=True)
    server = serve(tmp_path)
    client = server.clients.enter_context(triton.InferenceServerClient(server.grpc))
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(6):
        client.async_stream_infer("countdown", count_of(20), request_id=str(number))
    left: dict[str, list[float]] = {}
    for _ in range(6 * 20):
        result, error = answers.get(timeout=10)
        assert error is None
        left.setdefault(result.get_response().id, []).append(result.as_numpy("Y")[0, 0])
    client.stop_stream()
    assert left == {str(number): [float(19 - step) for step in range(20)] for number in range(6)}


@STRATEGIES
def test_a_unary_model_answers_when_it_is_done(tmp_path, serve, strategy):
    sequence_models.countdown(tmp_path, strategy, is_decoupled=False)
    server = serve(tmp_path)
    client = server.clients.enter_context(triton.InferenceServerClient(server.grpc))
    assert client.infer("countdown", count_of(5)).as_numpy("Y")[0, 0] == 0
    (model,) = client.get_inference_statistics("countdown").model_stats
    assert (model.inference_stats.success.count, model.execution_count) == (1, 5)


def test_a_client_that_goes_ends_its_request(tmp_path, serve):
    sequence_models.countdown(tmp_path, "oldest { }", is_decoupled=False)
    server = serve(tmp_path)
    client = server.clients.enter_context(triton.InferenceServerClient(server.grpc))
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        client.infer("countdown", count_of(1e9), client_timeout=0.3)

    def executions() -> int:
        return client.get_inference_statistics("countdown").model_stats[0].execution_count

    def has_stopped() -> bool:
        before = executions()
        return client.infer("countdown", count_of(1)).as_numpy("Y")[0, 1] == 1 and executions() == before + 1

    wait_until(has_stopped, what="the given up request to run no more")


def test_only_iterative_models_may_want_a_request_again(tmp_path, serve):
    sequence_models.countdown(tmp_path, "oldest { }", is_decoupled=False, is_iterative=False)
    server = serve(tmp_path)
    client = server.clients.enter_context(triton.InferenceServerClient(server.grpc))
    with pytest.raises(InferenceServerException, match="iterative_sequence: true"):
        client.infer("countdown", count_of(2), sequence_id=1, sequence_start=True)
