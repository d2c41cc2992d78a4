"""Which backend and file a model gets by what is in its folder, and which of its versions are served: one row a rule."""

from __future__ import annotations

import onnx_models
import pytest
import requests
from http_models import write_identity
from model_folders import write_model

TENSORS = """
max_batch_size: 4
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("files")
    network = onnx_models.sum_and_difference()
    onnx_models.save(network, repository / "by_file/1/model.onnx")
    onnx_models.save(network, repository / "by_folder/1/model.onnx/model.onnx")
    for name, file, config in (
        ("by_platform", "model.onnx", 'platform: "onnxruntime_onnx"'),
        ("by_given_name", "net.onnx", 'default_model_filename: "net.onnx"'),
        ("by_backend", "model.onnx", 'backend: "onnxruntime"'),
    ):
        onnx_models.save(network, write_model(repository, name, config) / "1" / file)
    write_model(repository, "by_suffix.identity", TENSORS)
    for name, file, config in (
        ("own_library", "libtriton_own.so", f'backend: "own"\n{TENSORS}'),
        ("own_library_of_version", "1/libtriton_own.so", f'backend: "own"\n{TENSORS}'),
        ("no_engine", "1/model.plan", TENSORS),
    ):
        (write_model(repository, name, config) / file).touch()
    for name, policy in (("latest", ""), ("latest_2", "version_policy { latest { num_versions: 2 } }")):
        write_identity(repository, name)
        folder = repository / name
        for version in (3, 10, 9):
            (folder / str(version)).mkdir()
        file = folder / "config.pbtxt"
        file.write_text(f"{file.read_text()}\n{policy}")
    return serve_for_module(repository, "--exit-on-error=false")


@pytest.fixture(scope="module")
def index(server):
    return requests.post(f"{server.url}/v2/repository/index", timeout=10).json()


@pytest.mark.parametrize(
    ("name", "backend", "file"),
    [
        ("by_file", "onnxruntime", "model.onnx"),
        ("by_folder", "onnxruntime", "model.onnx"),
        ("by_platform", "onnxruntime", "model.onnx"),
        ("by_given_name", "onnxruntime", "net.onnx"),
        ("by_backend", "onnxruntime", "model.onnx"),
        ("by_suffix.identity", "identity", "model.identity"),
    ],
)
def test_the_backend_and_the_file_follow_from_what_is_there(server, name, backend, file):
    config = requests.get(f"{server.url}/v2/models/{name}/config", timeout=10).json()
    assert (config["backend"], config["default_model_filename"]) == (backend, file)


@pytest.mark.parametrize("name", ["by_file", "by_folder", "by_platform", "by_given_name", "by_backend"])
def test_what_the_config_leaves_out_comes_from_the_file(server, name):
    config = requests.get(f"{server.url}/v2/models/{name}/config", timeout=10).json()
    assert (config["max_batch_size"], config["dynamic_batching"]["preferred_batch_size"]) == (4, [4])
    inputs = [(tensor["name"], list(map(int, tensor["dims"]))) for tensor in config["input"]]
    assert inputs == [("a", [4]), ("b", [4])]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_library", "own_library/libtriton_own.so' is a native backend, which Naiad can't load"),
        ("own_library_of_version", "own_library_of_version/1/libtriton_own.so' is a native backend"),
        ("no_engine", "unable to find backend library for backend 'tensorrt'"),
    ],
)
def test_a_backend_that_can_not_be_had_is_named(index, name, words):
    [entry] = [entry for entry in index if entry["name"] == name]
    assert (entry["state"], words in entry["reason"]) == ("UNAVAILABLE", True), entry


@pytest.mark.parametrize(("name", "versions"), [("latest", ["10"]), ("latest_2", ["9", "10"])])
def test_latest_are_the_greatest_numbers(index, name, versions):
    assert [entry["version"] for entry in index if entry["name"] == name and entry["state"] == "READY"] == versions
