"""Models run their warm-up samples on every instance before they serve, and don't serve when one fails."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import onnx_models
import pytest
import requests
import sequence_models
import tritonclient.grpc
import tritonclient.http
from google.protobuf import text_format
from model_folders import identity, write_model
from sequence_models import SequenceClient
from server_process import ServerProcess

from naiad.config.json_form import to_json
from naiad.proto import message_class

MODEL = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.file = os.path.join(args["model_repository"], "..", "..", "runs.txt")
        self.name = args["model_instance_name"]

    def execute(self, requests):
        shapes = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy().shape for request in requests]
        with open(self.file, "a") as file:
            file.write(f"{self.name} {len(requests)} {shapes[0]}\\n")
        if BROKEN:
            raise RuntimeError("no memory for this batch")
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])
            for request in requests
        ]
"""


def sample(name: str = "w", more: str = "batch_size: 1", data: str = "zero_data: true", dims: int = 2) -> str:
    inputs = f'inputs {{ key: "X" value {{ data_type: TYPE_FP32 dims: [ {dims} ] {data} }} }}'
    return f'model_warmup {{ name: "{name}" {more} {inputs} }}\n'


def python_model(repository: Path, more: str, is_broken: bool = False) -> None:
    folder = write_model(
        repository,
        "py",
        f"""
        backend: "python" max_batch_size: 8
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }}]
        {more}
        """,
    )
    (folder / "1" / "model.py").write_text(MODEL.replace("BROKEN", str(is_broken)))


def runs(repository: Path) -> list[str]:
    return sorted((repository.parent / "runs.txt").read_text().splitlines())


def failed_load(repository: Path) -> str:
    """Start a server whose model fails to load, which ends it; return what it says."""
    server = ServerProcess(repository)
    assert server.wait() == 1
    return server.log()


def stats(server: ServerProcess, model: str) -> dict:
    return requests.get(f"{server.url}/v2/models/{model}/stats", timeout=10).json()["model_stats"][0]


def test_each_instance_of_a_python_model_runs_each_sample_as_often_as_it_says(tmp_path, serve):
    repository = tmp_path / "models"
    more = "instance_group { count: 2 kind: KIND_CPU }" + sample("a", "batch_size: 3 count: 2") + sample("b")
    python_model(repository, more)
    server = serve(repository)
    each = ["1 (1, 2)", "3 (1, 2)", "3 (1, 2)"]
    assert runs(repository) == [f"py_0_{number} {run}" for number in (0, 1) for run in each]
    counted = stats(server, "py")
    assert (counted["inference_count"], counted["execution_count"], counted["last_inference"]) == (0, 0, 0)
    assert counted["inference_stats"]["success"]["count"] == 0
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert server.infer("py", body).json()["outputs"][0]["data"] == [1, 2]
    assert stats(server, "py")["execution_count"] == 1


def test_a_sample_that_fails_in_a_python_model_fails_the_load(tmp_path):
    repository = tmp_path / "models"
    python_model(repository, sample("first"), is_broken=True)
    said = failed_load(repository)
    assert "failed to run warmup sample 'first': " in said
    assert "no memory for this batch" in said


def test_a_reload_whose_sample_fails_leaves_what_serves(tmp_path, serve):
    repository = tmp_path / "models"
    python_model(repository, sample())
    server = serve(repository, "--model-control-mode=explicit", "--load-model=py")
    python_model(repository, sample("broken"), is_broken=True)
    refused = requests.post(f"{server.url}/v2/repository/models/py/load", timeout=10)
    assert refused.status_code == 400
    assert "failed to run warmup sample 'broken'" in refused.json()["error"]
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert server.infer("py", body).json()["outputs"][0]["data"] == [1, 2]


def test_an_instance_that_is_added_later_runs_the_samples_before_requests(tmp_path, serve):
    repository = tmp_path / "models"
    python_model(repository, sample())
    server = serve(repository, "--model-control-mode=explicit", "--load-model=py")
    python_model(repository, sample() + "instance_group { name: 'py' count: 2 kind: KIND_CPU }".replace("'", '"'))
    requests.post(f"{server.url}/v2/repository/models/py/load", timeout=10).raise_for_status()
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    server.infer("py", body).raise_for_status()
    server.infer("py", body).raise_for_status()
    assert len(set(runs(repository))) == 2


def test_models_in_the_servers_process_run_their_samples_and_count_nothing(tmp_path, serve):
    folder = tmp_path / "echo" / "warmup"
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(np.arange(2, dtype=np.float32).tobytes())
    identity(tmp_path, dims="2", delay_ms=150, more=sample(more="batch_size: 4 count: 2", data='input_data_file: "x"'))
    server = serve(tmp_path)
    assert stats(server, "echo")["execution_count"] == 0
    assert server.metric("nv_model_load_duration_secs", model="echo") > 0.3


def test_a_sample_that_an_onnx_model_can_not_run_fails_the_load(tmp_path):
    onnx_models.save(onnx_models.sum_and_difference(("n", "k")), tmp_path / "add" / "1" / "model.onnx")
    inputs = "".join(
        f'inputs {{ key: "{name}" value {{ data_type: TYPE_FP32 dims: [ {size} ] random_data: true }} }}'
        for name, size in (("a", 2), ("b", 3))
    )
    (tmp_path / "add" / "config.pbtxt").write_text(f'model_warmup {{ name: "s" batch_size: 1 {inputs} }}')
    said = failed_load(tmp_path)
    assert "failed to run warmup sample 's': " in said


def test_a_sequence_model_is_warmed_as_by_a_first_request(tmp_path, serve):
    """What the batcher adds, control tensors and states, a sample needn't name; it may."""
    models = tmp_path / "models"
    accumulate = sequence_models.accumulate(models)
    tell = sequence_models.tell(models, "direct { }")
    named = 'inputs { key: "START" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } }'
    for folder, dims, more in ((accumulate, 2, "batch_size: 3"), (tell, 1, f"batch_size: 2 {named}")):
        config = folder / "config.pbtxt"
        config.write_text(config.read_text() + sample(more=more, dims=dims))
    script = tell / "1" / "model.py"
    said = tmp_path / "said"
    line = "        text = np.array"
    script.write_text(script.read_text().replace(line, f"        open({str(said)!r}, 'a').write(json.dumps(told))\n{line}"))
    server = serve(models)
    [told, _] = json.loads(said.read_text())
    assert told[2:6] == [True, 0, 0, 1]
    client = SequenceClient(tritonclient.grpc, server.grpc, "accumulate")
    server.clients.enter_context(client.triton)
    assert client.ask(1, 1, "SE", width=2) == [1, 1]


def string_model(config_more: str) -> tuple[str, bytes]:
    """Return the config, as JSON, and the program of a model that notes in the file `said` the texts that it gets."""
    text = f"""
    name: "texts" backend: "python" max_batch_size: 2
    input [{{ name: "X" data_type: TYPE_STRING dims: [ 1 ] }}]
    output [{{ name: "Y" data_type: TYPE_STRING dims: [ 1 ] }}]
    {config_more}
    """
    config = text_format.Parse(text, message_class("inference.ModelConfig")())
    return json.dumps(to_json(config)), TEXTS


TEXTS = b"""
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        with open(os.environ["SAID"], "ab") as said:
            said.write(b"".join(tensor.as_numpy().item() + b"|" for tensor in tensors))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor.as_numpy())]) for tensor in tensors]
"""
TEXT_SAMPLE = """
model_warmup { name: "text" batch_size: 1 count: 2
  inputs { key: "X" value { data_type: TYPE_STRING dims: [ 1 ] input_data_file: "text" } } }
"""


def test_a_model_that_is_sent_may_bring_the_data_of_its_samples(tmp_path, serve):
    identity(tmp_path / "models")
    config, program = string_model(TEXT_SAMPLE)
    said = tmp_path / "said"
    flags = ("--model-control-mode=explicit", "--allow-model-upload=true")
    server = serve(tmp_path / "models", *flags, environment={"SAID": str(said)})
    with tritonclient.http.InferenceServerClient(server.http) as client:
        files = {"file:1/model.py": program}
        with pytest.raises(tritonclient.http.InferenceServerException, match=r"'text' of model 'texts'.*warmup"):
            client.load_model("texts", config=config, files=files)
        text = "it\u2019s".encode()
        client.load_model("texts", config=config, files={**files, "file:warmup/text": struct.pack("<I", len(text)) + text})
        assert client.is_model_ready("texts")
    assert said.read_bytes() == (text + b"|") * 2


def test_a_load_that_brings_another_config_runs_its_samples_with_the_data_on_disk(tmp_path, serve):
    models = tmp_path / "models"
    config, program = string_model(TEXT_SAMPLE)
    folder = write_model(models, "texts", 'backend: "python"')
    (folder / "1" / "model.py").write_bytes(program)
    (folder / "warmup").mkdir()
    (folder / "warmup" / "text").write_bytes(struct.pack("<I", 5) + b"plain")
    said = tmp_path / "said"
    server = serve(models, "--model-control-mode=explicit", environment={"SAID": str(said)})
    with tritonclient.http.InferenceServerClient(server.http) as client:
        client.load_model("texts", config=config)
    assert said.read_bytes() == b"plain|" * 2
