"""Rules of shadow copies with a real server: whatever the version on trial does, who asked gets the other version's answer."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from posix_object import PosixObject
from server_process import ServerProcess
from waiting import wait_until

MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}

_MODEL = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.join(args["model_repository"], args["model_version"])
        self.answer = np.array([[float(args["model_version"])]], np.float32)
        with open(os.path.join(self.folder, "does.txt")) as file:
            self.does = file.read()

    def execute(self, requests):
        return [self.answer_one(request) for request in requests]

    def answer_one(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        with open(os.path.join(self.folder, "seen.txt"), "a") as file:
            file.write(f"{request.request_id()} {float(x.sum())}\\n")
        if self.does == "crash":
            os._exit(3)
        while self.does == "hang" and not os.path.exists(os.path.join(self.folder, "go.txt")):
            time.sleep(0.01)
        if self.does == "fail":
            return pb_utils.InferenceResponse([], pb_utils.TritonError("this version is bad"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.answer)])
"""

_STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.answer = np.array([[float(args["model_version"])]], np.float32)

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0, 0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.answer)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            called = pb_utils.InferenceRequest(model_name="trial", requested_output_names=["Y"], inputs=[x]).exec()
            answers.append(pb_utils.InferenceResponse(called.output_tensors()))
        return answers
"""

CONFIG = """
backend: "{backend}"
max_batch_size: 4
version_policy {{ all {{}} }}
input [{{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}]
"""


def write(repository: Path, settings: object = None, *, backend: str = "python", name: str = "trial", more: str = "") -> Path:
    folder = repository / name
    folder.mkdir(parents=True)
    text = json.dumps(settings).replace('"', '\\"')
    parameter = f'parameters {{ key: "naiad_traffic" value {{ string_value: "{text}" }} }}\n' if settings else ""
    (folder / "config.pbtxt").write_text(CONFIG.format(backend=backend) + parameter + more)
    return folder


def trial(repository: Path, does: str, settings: object) -> Path:
    """Write a model whose version 1 answers and whose version 2 `does` something; return the folder of the latter."""
    folder = write(repository, settings)
    for version, text in ((1, "answer"), (2, does)):
        (folder / str(version)).mkdir()
        (folder / str(version) / "model.py").write_text(_MODEL)
        (folder / str(version) / "does.txt").write_text(text)
    return folder / "2"


class Asker:
    """Triton's client of one model."""

    def __init__(self, server: ServerProcess, protocol: str, name: str = "trial") -> None:
        module = self._module = MODULES[protocol]
        address = server.http if protocol == "http" else server.grpc
        self._client = server.clients.enter_context(module.InferenceServerClient(address))
        self._name = name

    def __call__(self, *values: float, request_id: str = "") -> float:
        tensor = self._module.InferInput("X", [1, len(values)], "FP32")
        tensor.set_data_from_numpy(np.array([values], np.float32))
        return float(self._client.infer(self._name, [tensor], request_id=request_id).as_numpy("Y")[0, 0])


def shadow_count(server: ServerProcess, result: str, model: str = "trial", version: str = "2") -> float:
    """Return the counter's value, 0 when there is no such series yet."""
    text = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    labels = [f'model="{model}"', f'version="{version}"', f'result="{result}"']
    lines = [line for line in text.splitlines() if line.startswith("naiad_shadow_requests_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in labels))


SHADOW = {"weights": {"1": 1}, "shadow": {"2": 1}}


@pytest.mark.parametrize("protocol", MODULES)
def test_a_copy_has_the_inputs_and_the_id_and_counts_for_its_own_version(serve, tmp_path, protocol):
    folder = trial(tmp_path / "models", "answer", SHADOW)
    server = serve(tmp_path / "models")
    ask = Asker(server, protocol)
    assert [ask(number, 2, request_id=f"n{number}") for number in range(5)] == [1.0] * 5
    wait_until(lambda: shadow_count(server, "success") == 5)
    expected = [f"n{number} {number + 2.0}" for number in range(5)]
    assert sorted((folder / "seen.txt").read_text().splitlines()) == expected
    assert server.metric("nv_inference_request_success", model="trial", version="2") == 5
    assert server.metric("nv_inference_request_success", model="trial", version="1") == 5
    assert server.metric("naiad_shadow_requests_in_flight", model="trial") == 0


def test_large_inputs_arrive_whole(serve, tmp_path):
    folder = trial(tmp_path / "models", "answer", SHADOW)
    server = serve(tmp_path / "models")
    values = np.full(1_000_000, 2.0, np.float32)
    for protocol in MODULES:
        assert Asker(server, protocol)(*values) == 1.0
    wait_until(lambda: shadow_count(server, "success") == 2)
    assert (folder / "seen.txt").read_text().split() == ["2000000.0"] * 2


def test_a_version_that_fails_fails_nobody(serve, tmp_path):
    trial(tmp_path / "models", "fail", SHADOW)
    server = serve(tmp_path / "models")
    assert [Asker(server, protocol)(1.0) for protocol in MODULES for _ in range(5)] == [1.0] * 10
    wait_until(lambda: shadow_count(server, "failure") == 10)
    assert server.metric("nv_inference_request_failure", model="trial", version="2", reason="BACKEND") == 10
    assert server.metric("nv_inference_request_success", model="trial", version="1") == 10


def test_a_version_that_crashes_fails_nobody(serve, tmp_path):
    trial(tmp_path / "models", "crash", SHADOW)
    server = serve(tmp_path / "models")
    ask = Asker(server, "http")
    wait_until(lambda: ask(1.0) == 1.0 and shadow_count(server, "failure") >= 2, what="two copies that died")
    assert Asker(server, "grpc")(1.0) == 1.0
    assert server.metric("nv_inference_request_failure", model="trial", version="1", reason="BACKEND") == 0


def test_a_version_that_hangs_holds_nobody_up_and_copies_are_bounded(serve, tmp_path):
    folder = trial(tmp_path / "models", "hang", {**SHADOW, "max_shadow_in_flight": 2})
    server = serve(tmp_path / "models")
    assert [Asker(server, protocol)(1.0) for protocol in MODULES for _ in range(10)] == [1.0] * 20
    assert server.metric("naiad_shadow_requests_in_flight", model="trial") == 2
    assert shadow_count(server, "dropped") == 18
    (folder / "go.txt").touch()
    wait_until(lambda: shadow_count(server, "success") == 2)
    assert server.metric("naiad_shadow_requests_in_flight", model="trial") == 0
    assert Asker(server, "http")(1.0) == 1.0
    wait_until(lambda: shadow_count(server, "success") == 3)


def test_the_end_of_the_server_does_not_wait_for_queued_copies(serve, tmp_path):
    folder = trial(tmp_path / "models", "hang", SHADOW)
    server = serve(tmp_path / "models")
    ask = Asker(server, "http")
    assert [ask(1.0) for _ in range(5)] == [1.0] * 5
    wait_until((folder / "seen.txt").exists)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(server.stop)
        wait_until(lambda: server.metric("naiad_shadow_requests_in_flight", model="trial") == 0, what="the drain")
        # The one that runs can't be stopped and is let go; those in the queue never run.
        (folder / "go.txt").touch()
        assert ended.result() == 0
    assert len((folder / "seen.txt").read_text().splitlines()) <= 2


def test_a_client_that_leaves_takes_nothing_with_it(serve, tmp_path):
    folder = trial(tmp_path / "models", "hang", {"weights": {"2": 1}, "shadow": {"1": 1}})
    server = serve(tmp_path / "models")
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(f"{server.url}/v2/models/trial/infer", json=body, timeout=0.5)
    wait_until(lambda: shadow_count(server, "success", version="1") == 1)
    wait_until(lambda: server.metric("nv_inference_request_failure", model="trial", version="2", reason="CANCELED") == 1)
    (folder / "go.txt").touch()
    assert Asker(server, "grpc")(1.0) == 2.0


def test_calls_of_other_models_follow_the_settings_and_are_copied(serve, tmp_path):
    folder = trial(tmp_path / "models", "hang", SHADOW)
    caller = write(tmp_path / "models", name="caller")
    (caller / "1").mkdir()
    (caller / "1" / "model.py").write_text(_CALLER)
    server = serve(tmp_path / "models")
    ask = Asker(server, "http", "caller")
    # The copy hangs, and what it holds is its own: the caller goes on calling.
    assert [ask(*np.full(10_000, number, np.float32)) for number in range(1, 41)] == [1.0] * 40
    (folder / "go.txt").touch()
    wait_until(lambda: server.metric("naiad_shadow_requests_in_flight", model="trial") == 0)
    sums = [float(line.split()[-1]) for line in (folder / "seen.txt").read_text().splitlines()]
    assert sums == [10_000.0 * number for number in range(1, len(sums) + 1)]
    assert shadow_count(server, "success") == len(sums) == 16


def test_streams_are_shared_and_their_copies_dropped(serve, tmp_path):
    folder = write(tmp_path / "models", SHADOW, more="model_transaction_policy { decoupled: true }\n")
    for version in (1, 2):
        (folder / str(version)).mkdir()
        (folder / str(version) / "model.py").write_text(_STREAM)
    server = serve(tmp_path / "models")
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[50]], np.float32))
    client.async_stream_infer("trial", [tensor])
    got = [answers.get(timeout=10) for _ in range(50)]
    client.stop_stream()
    assert [(float(result.as_numpy("Y")[0, 0]), error) for result, error in got] == [(1.0, None)] * 50
    wait_until(lambda: shadow_count(server, "success") == 1)


@pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")
def test_inputs_that_a_client_may_change_are_not_copied_and_copies_write_no_memory_of_clients(serve, tmp_path):
    folder = write(tmp_path / "models", SHADOW, backend="identity")
    for version in (1, 2):
        (folder / str(version)).mkdir()
    server = serve(tmp_path / "models", "--allow-client-shm=true")
    small, large = 4, 2 << 20
    with PosixObject(2 * large) as memory:
        memory.write(np.full(large // 4, 7, np.float32).tobytes())
        body = {"key": memory.key, "byte_size": 2 * large}
        requests.post(f"{server.url}/v2/systemsharedmemory/region/r/register", json=body, timeout=10).raise_for_status()

        def ask(inputs: dict, size_bytes: int) -> None:
            place = {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes, "shared_memory_offset": large}
            asked = {"inputs": [{"name": "X", "datatype": "FP32", **inputs}], "outputs": [{"name": "Y", "parameters": place}]}
            server.infer("trial", asked).raise_for_status()

        for size_bytes in (small, large):
            place = {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes}
            ask({"shape": [1, size_bytes // 4], "parameters": place}, size_bytes)
            assert memory.read(size_bytes, large) == memory.read(size_bytes)
        ask({"shape": [1, 1], "data": [8]}, small)
        assert np.frombuffer(memory.read(8, large), np.float32).tolist() == [8, 7]
    wait_until(lambda: shadow_count(server, "success") == 2)
    assert shadow_count(server, "skipped") == 1
    assert server.metric("nv_inference_request_success", model="trial", version="1") == 3


@pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")
def test_steps_of_ensembles_follow_the_settings_and_keep_the_rule_of_memory_of_clients(serve, tmp_path):
    folder = write(tmp_path / "models", SHADOW, backend="identity")
    for version in (1, 2):
        (folder / str(version)).mkdir()
    ensemble = tmp_path / "models" / "whole"
    (ensemble / "1").mkdir(parents=True)
    (ensemble / "config.pbtxt").write_text(
        """
        platform: "ensemble"
        max_batch_size: 4
        input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }]
        output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]
        ensemble_scheduling { step [{
          model_name: "trial" model_version: -1
          input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
        }] }
        """
    )
    server = serve(tmp_path / "models", "--allow-client-shm=true")
    assert Asker(server, "http", "whole")(5.0) == 5.0
    wait_until(lambda: shadow_count(server, "success") == 1)
    size_bytes = 2 << 20
    with PosixObject(size_bytes) as memory:
        body = {"key": memory.key, "byte_size": size_bytes}
        requests.post(f"{server.url}/v2/systemsharedmemory/region/r/register", json=body, timeout=10).raise_for_status()
        place = {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes}
        tensor = {"name": "X", "shape": [1, size_bytes // 4], "datatype": "FP32", "parameters": place}
        outputs = [{"name": "Y", "parameters": {"binary_data": True}}]
        server.infer("whole", {"inputs": [tensor], "outputs": outputs}).raise_for_status()
    assert shadow_count(server, "skipped") == 1
    assert server.metric("nv_inference_request_success", model="trial", version="1") == 2


def test_naiad_check_names_the_line_and_every_mistake(tmp_path):
    folder = write(tmp_path, {"weights": {"1": "all"}, "shadow": {"2": 7}}, backend="identity")
    (folder / "1").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "naiad", "check", str(tmp_path)], capture_output=True, text=True, timeout=15, check=False
    )
    line = next(
        number for number, text in enumerate((folder / "config.pbtxt").read_text().splitlines(), 1) if "weights" in text
    )
    said = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 1
    assert f"config.pbtxt:{line}:" in said
    assert '\'weights\' of version "1" is "all", must be a number from 0 to 1000000000' in said
    assert "'shadow' of version \"2\" is 7, must be a number from 0 to 1" in said


def test_a_version_that_is_named_and_not_served_is_a_warning_of_the_check_and_of_the_load(serve, tmp_path):
    folder = write(tmp_path, {"weights": {"2": 1, "1": 1}, "shadow": {"7": 1}}, backend="identity")
    text = (folder / "config.pbtxt").read_text().replace("version_policy { all {} }", "")
    (folder / "config.pbtxt").write_text(text)
    for version in (1, 2):
        (folder / str(version)).mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "naiad", "check", str(tmp_path)], capture_output=True, text=True, timeout=15, check=False
    )
    server = serve(tmp_path)
    why = "which isn't served: version_policy and the model's folder select 2"
    warning = "parameter 'naiad_traffic' for trial names version {}, " + why
    said = " ".join(ended.stdout.split())
    logged = [line for line in server.errors if "naiad_traffic" in line]
    assert (ended.returncode, "warning: " + warning.format(1) in said, warning.format(7) in said) == (0, True, True)
    assert [warning.format(version) in line for version, line in zip((1, 7), logged)] == [True, True]
