"""The response cache of a real server, over HTTP and gRPC."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from secrets import token_hex

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from model_folders import identity, write_model
from raw_http import Connection, infer
from tritonclient.utils import shared_memory
from waiting import wait_until

TWO = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            tensors = [pb_utils.Tensor("Y", x), pb_utils.Tensor("Z", -x)]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""
CACHED = "response_cache { enable: true }"
CACHE = "--cache-config=local,size=1048576"


def two(repository: Path, factor: str = "-x") -> None:
    folder = write_model(
        repository,
        "two",
        f"""
        backend: "python"
        max_batch_size: 8
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}, {{ name: "Z" data_type: TYPE_FP32 dims: [ -1 ] }}]
        {CACHED}
        """,
    )
    (folder / "1" / "model.py").write_text(TWO.replace("-x", factor))


def body(values, outputs=None, **more):
    shape = list(np.shape(values))
    made = {"inputs": [{"name": "X", "datatype": "FP32", "shape": shape, "data": np.ravel(values).tolist()}], **more}
    return made if outputs is None else {**made, "outputs": outputs}


def answered(response) -> dict:
    assert response.status_code == 200, response.text
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


def test_each_answer_holds_the_outputs_that_were_asked_for_whatever_was_kept_before(tmp_path, serve):
    """A kept answer must not decide which outputs the next client gets."""
    two(tmp_path)
    server = serve(tmp_path, CACHE)
    x = [[1.0, 2.0]]
    y, z = {"name": "Y"}, {"name": "Z"}
    wanted = {"Y": [1.0, 2.0], "Z": [-1.0, -2.0]}
    for outputs in ([y], [y, z], [z], [z, y], None):
        found = answered(server.infer("two", body(x, outputs)))
        names = ["Y", "Z"] if outputs is None else [output["name"] for output in outputs]
        assert list(found.items()) == [(name, wanted[name]) for name in names]
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    tensor = tritonclient.http.InferInput("X", [1, 2], "FP32").set_data_from_numpy(np.array(x, np.float32))
    binary = client.infer("two", [tensor], outputs=[tritonclient.http.InferRequestedOutput("Y")])
    assert binary.as_numpy("Y").tolist() == x
    classes = [{"name": "Y", "parameters": {"classification": 1}}]
    assert answered(server.infer("two", body(x, classes))) == {"Y": ["2.000000:1"]}

    hits = server.metric("nv_cache_num_hits_per_model", model="two")
    executions = server.metric("nv_inference_exec_count", model="two")
    assert answered(server.infer("two", body(x, [y]))) == {"Y": [1.0, 2.0]}
    assert server.metric("nv_cache_num_hits_per_model", model="two") == hits + 1
    assert server.metric("nv_inference_exec_count", model="two") == executions
    # [Y], [Y, Z], [Z] and [Z, Y] have run; nothing listed is the same as [Y, Z].
    assert (executions, server.metric("nv_cache_num_misses_per_model", model="two")) == (4, 4)
    assert server.metric("nv_inference_request_success", model="two") == 8
    assert server.metric("nv_cache_num_entries") == 4


def test_http_and_grpc_share_the_answers_and_the_statistics_tell_of_them(tmp_path, serve):
    two(tmp_path)
    server = serve(tmp_path, CACHE)
    answered(server.infer("two", body([[3.0]]), headers={"Content-Type": "application/json"}))
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32").set_data_from_numpy(np.array([[3]], np.float32))
    found = client.infer("two", [tensor], request_id="again")
    assert (found.as_numpy("Z").tolist(), found.get_response().id) == ([[-3.0]], "again")
    stats = client.get_inference_statistics("two").model_stats[0]
    inner = stats.inference_stats
    assert (stats.inference_count, stats.execution_count) == (1, 1)
    counts = [getattr(inner, name).count for name in ("success", "queue", "compute_infer", "cache_hit", "cache_miss", "fail")]
    assert counts == [2, 2, 1, 1, 1, 0]
    assert inner.cache_hit.ns > 0
    assert inner.cache_miss.ns > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (body([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), body([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
        (body([[1.0]]), body([[1.0]], parameters={"p": 1})),
        (body([[1.0]], parameters={"p": 1}), body([[1.0]], parameters={"p": "1"})),
    ],
    ids=["shape", "parameter", "type of a parameter"],
)
def test_requests_that_differ_in_what_an_answer_may_depend_on_both_run(tmp_path, serve, one, other):
    two(tmp_path)
    server = serve(tmp_path, CACHE)
    for sent in (one, other, one, other):
        assert answered(server.infer("two", sent))["Y"] == sent["inputs"][0]["data"]
    assert server.metric("nv_inference_exec_count", model="two") == 2


def test_a_header_that_is_forwarded_is_part_of_the_question(tmp_path, serve):
    two(tmp_path)
    server = serve(tmp_path, CACHE, "--http-header-forward-pattern=x-user.*")
    for user in ("a", "b", "a"):
        answered(server.infer("two", body([[1.0]]), headers={"X-User": user}))
    assert server.metric("nv_inference_exec_count", model="two") == 2


def test_a_model_that_was_loaded_anew_answers_itself(tmp_path, serve):
    two(tmp_path)
    server = serve(tmp_path, CACHE, "--model-control-mode=explicit", "--load-model=*")
    assert answered(server.infer("two", body([[1.0]])))["Z"] == [-1.0]
    two(tmp_path, factor="x * 10")
    requests.post(f"{server.url}/v2/repository/models/two/load", timeout=10).raise_for_status()
    assert answered(server.infer("two", body([[1.0]])))["Z"] == [10.0]
    wait_until(lambda: server.metric("nv_cache_num_entries") == 1, what="the old model's answers to go")


def test_equal_requests_at_the_same_time_run_once(tmp_path, serve):
    identity(tmp_path, delay_ms=500, more=CACHED)
    server = serve(tmp_path, CACHE)
    found: list[dict] = []
    threads = [threading.Thread(target=lambda: found.append(answered(server.infer("echo", body([[7.0]]))))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"Y": [7.0]}] * 6
    assert server.metric("nv_inference_exec_count", model="echo") == 1
    assert server.metric("nv_inference_pending_request_count", model="echo") == 0


def test_a_large_request_is_kept_too_and_one_larger_than_the_cache_is_answered(tmp_path, serve):
    identity(tmp_path, more=CACHED)
    server = serve(tmp_path, "--response-cache-byte-size=4000000")
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    for count in (600_000, 600_000, 2_000_000, 2_000_000):
        data = np.arange(count, dtype=np.float32).reshape(1, -1)
        tensor = tritonclient.http.InferInput("X", [1, count], "FP32").set_data_from_numpy(data)
        assert np.array_equal(client.infer("echo", [tensor]).as_numpy("Y"), data)
    assert server.metric("nv_inference_exec_count", model="echo") == 3
    assert server.metric("nv_cache_num_hits_per_model", model="echo") == 1


def test_a_model_without_the_cache_has_no_series_of_it_and_one_without_a_cache_is_told(tmp_path, serve):
    identity(tmp_path, "plain")
    server = serve(tmp_path, CACHE)
    answered(server.infer("plain", body([[1.0]])))
    assert "per_model" not in requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    assert server.metric("nv_cache_num_lookups") == 0

    identity(tmp_path, "wants", more=CACHED)
    server = serve(tmp_path)
    assert "model 'wants': response_cache.enable has no effect, as the server has no --cache-config" in server.log()
    for _ in range(2):
        answered(server.infer("wants", body([[1.0]])))
    assert server.metric("nv_inference_exec_count", model="wants") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")
def test_what_a_client_could_change_while_it_is_answered_is_never_kept(tmp_path, serve):
    identity(tmp_path, more=CACHED)
    server = serve(tmp_path, "--cache-config=local,size=100000000", "--allow-client-shm=true")
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    large, small = 600_000, 1000
    name = f"naiad-test-{token_hex(8)}"
    region = shared_memory.create_shared_memory_region("r", name, 4 * large)
    try:
        shared_memory.set_shared_memory_region(region, [np.arange(large, dtype=np.float32)])
        client.register_system_shared_memory("r", name, 4 * large)
        for count in (large, large, small, small):
            tensor = tritonclient.http.InferInput("X", [1, count], "FP32")
            tensor.set_shared_memory("r", 4 * count)
            assert np.array_equal(client.infer("echo", [tensor]).as_numpy("Y")[0], np.arange(count, dtype=np.float32))
        client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(region)
    # The large one is a view of the client's memory and runs twice, the small one is a copy and runs once.
    assert server.metric("nv_inference_exec_count", model="echo") == 3
    assert server.metric("nv_cache_num_hits_per_model", model="echo") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")
def test_a_kept_answer_is_written_to_the_shared_memory_of_each_who_asks(tmp_path, serve):
    identity(tmp_path, more=CACHED)
    server = serve(tmp_path, CACHE, "--allow-client-shm=true")
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    name = f"naiad-test-{token_hex(8)}"
    region = shared_memory.create_shared_memory_region("r", name, 64)
    try:
        client.register_system_shared_memory("r", name, 64)
        for offset in (0, 32):
            tensor = tritonclient.http.InferInput("X", [1, 2], "FP32")
            tensor.set_data_from_numpy(np.array([[5, 6]], np.float32))
            output = tritonclient.http.InferRequestedOutput("Y")
            output.set_shared_memory("r", 32, offset)
            client.infer("echo", [tensor], outputs=[output])
        found = shared_memory.get_contents_as_numpy(region, np.float32, [16])
        assert found[[0, 1, 8, 9]].tolist() == [5, 6, 5, 6]
        client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(region)
    assert server.metric("nv_cache_num_hits_per_model", model="echo") == 1


def test_the_same_bytes_again_count_as_hits_and_are_asked_anew_of_a_new_model(tmp_path, serve):
    two(tmp_path)
    server = serve(tmp_path, CACHE, "--model-control-mode=explicit", "--load-model=*")
    asking = infer("two", [1.0])
    with Connection(server.host_port) as connection:
        answers = [connection.send(asking).response() for _ in range(6)]
        assert len({answer[2] for answer in answers}) == 1
        assert server.metric("nv_inference_request_success", model="two") == 6
        assert server.metric("nv_cache_num_hits_per_model", model="two") == 5
        assert server.metric("nv_cache_num_hits") == 5
        assert server.metric("nv_inference_exec_count", model="two") == 1
        two(tmp_path, factor="x * 10")
        requests.post(f"{server.url}/v2/repository/models/two/load", timeout=10).raise_for_status()
        assert b"[10.0]" in connection.send(asking).response()[2]
        shares = {"weights": {"1": 1}}
        requests.post(f"{server.url}/v2/models/two/traffic", json=shares, timeout=10).raise_for_status()
        assert {b"[10.0]" in connection.send(asking).response()[2] for _ in range(4)} == {True}
    assert server.metric("nv_cache_num_hits_per_model", model="two") == 4
