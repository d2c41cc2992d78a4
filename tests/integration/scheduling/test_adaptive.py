"""A model whose batching has no numbers, in a real server: what it learns changes when requests run, not what is answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import model_folders
import numpy as np
import pytest
import tritonclient.http as httpclient

TARGET = 'parameters { key: "naiad_latency_target_ms" value { string_value: "200" } }'
CALLERS, EACH = 6, 40


@pytest.mark.parametrize("more", ["", TARGET, "instance_group [{ count: 2 kind: KIND_CPU }]"], ids=["plain", "target", "two"])
def test_every_caller_gets_its_own_answers_while_the_batcher_learns(tmp_path, serve, more):
    """Runs take 2 ms, so that waiting is considered; 240 requests in batches of 6 at most are many more runs than it needs."""
    model_folders.identity(tmp_path, delay_ms=2, more="dynamic_batching { } " + more)
    server = serve(tmp_path)
    client = server.clients.enter_context(httpclient.InferenceServerClient(server.http, concurrency=CALLERS))

    def call(caller: int) -> list[float]:
        answers = []
        for number in range(EACH):
            given = httpclient.InferInput("X", [1, 1], "FP32")
            given.set_data_from_numpy(np.float32([[caller * EACH + number]]))
            answers.append(float(client.infer("echo", [given]).as_numpy("Y")[0, 0]))
        return answers

    with ThreadPoolExecutor(CALLERS) as callers:
        answers = [answer for of_one in callers.map(call, range(CALLERS)) for answer in of_one]
    assert [float(number) for number in range(CALLERS * EACH)] == answers
    assert server.metric("nv_inference_request_success", model="echo") == CALLERS * EACH
    assert server.metric("naiad_batch_size_sum", model="echo") == CALLERS * EACH
