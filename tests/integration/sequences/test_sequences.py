"""Sequences through a real server: by HTTP and gRPC, in worker processes and in the server, and while models change."""

from __future__ import annotations

import json
import queue
import signal
import threading

import ensembles
import numpy as np
import pytest
import requests
import said_of_sequences as said
import sequence_models
import tritonclient.grpc
import tritonclient.http
from controlled_models import touch
from sequence_models import SequenceClient
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException
from waiting import wait_until

# Sequences that a test leaves open would hold the server up at its end.
HURRIED = "--exit-timeout-secs=0"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*", HURRIED)
CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


def client_of(server: ServerProcess, model: str, protocol: str = "grpc") -> SequenceClient:
    client = SequenceClient(CLIENTS[protocol], getattr(server, protocol), model)
    server.clients.enter_context(client.triton)
    return client


def refusal(client: SequenceClient, *arguments: object, **more: object) -> str:
    with pytest.raises(InferenceServerException) as caught:
        client.ask(*arguments, **more)
    return str(caught.value)


@pytest.mark.parametrize("strategy", said.EXPECTED)
@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_model_is_told_of_sequences_as_triton_tells_it(tmp_path, serve, strategy, protocol):
    sequence_models.tell(tmp_path, strategy)
    server = serve(tmp_path, HURRIED)
    client = client_of(server, "tell", protocol)
    assert said.ask_all(client) == said.EXPECTED[strategy]
    for asked, text in said.REFUSED.items():
        assert text in refusal(client, *asked)
    statistics = client.triton.get_inference_statistics("tell")
    (model,) = statistics["model_stats"] if protocol == "http" else statistics.model_stats
    counted = (
        (model["inference_count"], model["execution_count"])
        if protocol == "http"
        else (model.inference_count, model.execution_count)
    )
    assert counted == (len(said.ASKED), len(said.ASKED))


def test_clients_see_no_tensor_that_the_batcher_adds(tmp_path, serve):
    sequence_models.accumulate(tmp_path)
    client = client_of(serve(tmp_path), "accumulate", "http")
    metadata = client.triton.get_model_metadata("accumulate")
    assert [[tensor["name"] for tensor in metadata[side]] for side in ("inputs", "outputs")] == [["X"], ["Y"]]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }", "oldest { max_queue_delay_microseconds: 1000 }"])
def test_the_server_keeps_the_state_of_many_sequences_at_once(tmp_path, serve, strategy):
    sequence_models.accumulate(tmp_path, strategy)
    server = serve(tmp_path)
    sums: dict[int, list[float]] = {}

    def run(sequence_id: int) -> None:
        client = client_of(server, "accumulate", "grpc")
        sums[sequence_id] = [
            client.ask(sequence_id, sequence_id, "S" if step == 0 else "E" if step == 19 else "", width=2)[1]
            for step in range(20)
        ]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {number: [float(number * (step + 1)) for step in range(20)] for number in range(1, 13)}


@pytest.mark.parametrize(
    ("initial", "first"),
    [
        ("", [1, 1]),
        ('initial_state: { name: "zeros" data_type: TYPE_FP32 dims: [ 2 ] zero_data: true }', [1, 1]),
        ('initial_state: { name: "file" data_type: TYPE_FP32 dims: [ 2 ] data_file: "begin" }', [11, 21]),
    ],
)
def test_a_state_begins_with_zeros_or_a_file(tmp_path, serve, initial, first):
    folder = sequence_models.accumulate(tmp_path, initial=initial)
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "begin").write_bytes(np.array([10, 20], np.float32).tobytes())
    client = client_of(serve(tmp_path), "accumulate")
    assert client.ask(1, 1, "S", width=2) == first
    assert client.ask(1, 1, width=2) == [value + 1 for value in first]


def test_a_config_without_tensors_is_completed_without_those_of_the_batcher(tmp_path, serve):
    config = """
    backend: "onnxruntime"
    sequence_batching { state [{ input_name: "S" output_name: "S_NEXT" data_type: TYPE_FP32 dims: [ 2 ] }] }
    """
    sequence_models.accumulate(tmp_path, config=config)
    client = client_of(serve(tmp_path), "accumulate", "http")
    shown = client.triton.get_model_config("accumulate")
    assert [[tensor["name"] for tensor in shown[side]] for side in ("input", "output")] == [["X"], ["Y"]]
    assert [client.ask(1, 1, flags, width=2) for flags in ("S", "")] == [[1, 1], [2, 2]]


def test_sequences_of_a_stream_are_answered_in_their_order(tmp_path, serve):
    sequence_models.count(tmp_path, "oldest { }", instance_count=2)
    client = client_of(serve(tmp_path), "count").triton
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for step in range(30):
        for sequence_id in (1, 2, "three"):
            tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
            client.async_stream_infer(
                "count",
                [tensor],
                request_id=f"{sequence_id}",
                sequence_id=sequence_id,
                sequence_start=step == 0,
                sequence_end=step == 29,
            )
    got: dict[str, list[float]] = {}
    for _ in range(90):
        result, error = answers.get(timeout=10)
        assert error is None
        got.setdefault(result.get_response().id, []).append(result.as_numpy("Y").item())
    client.stop_stream()
    assert got == {name: [float(step + 1) for step in range(30)] for name in ("1", "2", "three")}


def test_a_dead_worker_ends_its_sequences_and_no_others(tmp_path, serve):
    sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000", instance_count=2, max_batch_size=1)
    server = serve(tmp_path, HURRIED)
    first, second = client_of(server, "count"), client_of(server, "count")
    assert (first.ask(1, 1, "S"), second.ask(2, 1, "S")) == ([1], [1])
    refusal(first, 1, -1)
    assert "must specify the START flag" in refusal(first, 1, 1)
    assert second.ask(2, 1) == [2]
    assert first.ask(1, 5, "S") == [5]


def test_a_reload_leaves_sequences_where_they_began(tmp_path, serve):
    folder = sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000")
    client = client_of(serve(tmp_path, *EXPLICIT), "count", "http")
    assert client.ask(1, 1, "S") == [1]
    script = folder / "1" / "model.py"
    script.write_text(script.read_text().replace("+= x", "+= 10 * x"))
    touch(script)
    client.triton.load_model("count")
    assert client.ask(2, 1, "S") == [10]
    assert (client.ask(1, 1), client.ask(2, 1), client.ask(1, 1, "E")) == ([2], [20], [3])
    assert client.ask(1, 1, "S") == [10]


def test_a_new_version_leaves_sequences_where_they_began(tmp_path, serve):
    folder = sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000")
    client = client_of(serve(tmp_path, *EXPLICIT), "count", "http")
    assert client.ask(1, 1, "S") == [1]
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text((folder / "1" / "model.py").read_text().replace("+= x", "+= 10 * x"))
    client.triton.load_model("count")
    assert (client.ask(2, 1, "S"), client.ask(1, 1), client.ask(1, 1, "E")) == ([10], [2], [3])
    wait_until(lambda: [entry["version"] for entry in index(client) if entry["state"] == "READY"] == ["2"])
    assert "START" in refusal(client, 1)


def index(client: SequenceClient) -> list[dict[str, str]]:
    return client.triton.get_model_repository_index()


def test_a_smaller_count_lets_sequences_end_first(tmp_path, serve):
    folder = sequence_models.count(
        tmp_path, "direct { } max_sequence_idle_microseconds: 60000000", instance_count=2, max_batch_size=1
    )
    client = client_of(serve(tmp_path, *EXPLICIT), "count", "http")
    assert (client.ask(1, 1, "S"), client.ask(2, 2, "S")) == ([1], [2])
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 1"))
    client.triton.load_model("count")
    assert (client.ask(1, 1), client.ask(2, 2), client.ask(1, 1, "E"), client.ask(2, 2, "E")) == ([2], [4], [3], [6])
    assert client.ask(3, 1, "SE") == [1]


def test_an_idle_sequence_is_forgotten_and_its_slot_serves_another(tmp_path, serve):
    sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 200000", max_batch_size=1)
    client = client_of(serve(tmp_path), "count")
    assert client.ask(1, 1, "S") == [1]
    assert client.ask(2, 1, "S") == [1]
    assert "must specify the START flag" in refusal(client, 1)


def test_at_sigterm_sequences_under_way_go_on_until_they_end(tmp_path, serve):
    sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000")
    server = serve(tmp_path)
    client = client_of(server, "count", "http")
    assert client.ask(1, 1, "S") == [1]
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 503)
    wait_until(lambda: "takes no new inference requests" in refusal(client, 2, 1, "S"))
    assert (client.ask(1, 1), client.ask(1, 1, "E")) == ([2], [3])
    assert server.wait() == 0


def begin_to_end(server: ServerProcess) -> None:
    """Send SIGTERM and return when the server takes no new requests."""
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 503)


def test_at_sigterm_sequences_of_an_ensemble_go_on_until_they_end(tmp_path, serve):
    sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000")
    ensembles.chain(tmp_path, "inner", ["count"], max_batch_size=4)
    ensembles.chain(tmp_path, "outer", ["inner"], max_batch_size=4)
    server = serve(tmp_path)
    client = client_of(server, "outer", "http")
    assert client.ask(1, 1, "S") == [1]
    begin_to_end(server)
    assert "takes no new inference requests" in refusal(client, 2, 1)
    assert (client.ask(1, 1), client.ask(1, 1, "E")) == ([2], [3])
    assert server.wait() == 0


def test_at_sigterm_sequences_of_a_version_that_shares_requests_go_on_although_a_worker_dies(tmp_path, serve):
    folder = sequence_models.count(tmp_path, "direct { } max_sequence_idle_microseconds: 60000000")
    config = folder / "config.pbtxt"
    shares = json.dumps({"weights": {"1": 1, "2": 0}}).replace('"', '\\"')
    config.write_text(
        config.read_text() + "version_policy { all { } }\n"
        f'parameters {{ key: "naiad_traffic" value {{ string_value: "{shares}" }} }}'
    )
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text((folder / "1" / "model.py").read_text())
    server = serve(tmp_path)
    client, other = client_of(server, "count", "http"), client_of(server, "count", "http")
    assert client.ask(1, 1, "S") == [1]
    assert other.ask(9, 1, "S", model_version="2") == [1]
    begin_to_end(server)
    assert "worker" in refusal(other, 9, -1, model_version="2")
    assert (client.ask(1, 1), client.ask(1, 1, "E")) == ([2], [3])
    assert server.wait() == 0


def test_a_stop_waits_for_abandoned_sequences_no_longer_than_their_idle_time(tmp_path, serve):
    sequence_models.count(tmp_path, "oldest { } max_sequence_idle_microseconds: 500000")
    server = serve(tmp_path)
    assert client_of(server, "count").ask(1, 1, "S") == [1]
    assert server.stop(timeout_s=10) == 0


@pytest.mark.parametrize("protocol", CLIENTS)
def test_sequences_that_nobody_ends_free_their_slots(tmp_path, serve, protocol):
    """Case 06: 50 are begun on two slots, half of their clients go; a proper one then runs as ever."""
    batching = f"max_sequence_idle_microseconds: 30000 direct {{ }} {sequence_models.CONTROLS}"
    sequence_models.count(tmp_path, batching, instance_count=2, max_batch_size=1)
    server = serve(tmp_path)
    answers: list[list[float]] = []

    def begin(number: int) -> None:
        client = client_of(server, "count", protocol)
        answers.append(client.ask(number, 1, "S"))
        if number % 2:
            client.triton.close()

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[1]] * 50
    client = client_of(server, "count", protocol)
    assert [client.ask(7, value, flags) for value, flags in ((1, "S"), (2, ""), (3, "E"))] == [[1], [3], [6]]
    assert "inference request for sequence 7 to model 'count' must specify the START flag" in refusal(client, 7)
