"""Health, metadata, configuration and statistics, raw and as tritonclient reads them."""

from __future__ import annotations

import pytest
from tritonclient.utils import InferenceServerException

import naiad

EXTENSIONS = {"classification", "model_repository", "binary_tensor_data", "parameters", "statistics", "logging"}

# The plain members of a configuration that are there whether set or not.
ALWAYS = {
    "name", "platform", "backend", "runtime", "version_policy", "max_batch_size", "input", "output", "batch_input",
    "batch_output", "optimization", "instance_group", "default_model_filename", "cc_model_filenames", "metric_tags",
    "parameters", "model_warmup",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready", "/v2/models/versions/versions/3/ready"]
)
def test_health_is_200_without_a_body(ask, path):
    response = ask("GET", path)
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "0")


def test_tritonclient_sees_the_server_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [("echo", "", True), ("versions", "12", True), ("versions", "1", False), ("no", "", False)],
)
def test_tritonclient_sees_which_models_are_ready(client, model, version, expected):
    assert client.is_model_ready(model, version) is expected


def test_server_metadata_has_the_id_the_version_and_the_extensions(client):
    metadata = client.get_server_metadata()
    assert list(metadata) == ["name", "version", "extensions"]
    assert (metadata["name"], metadata["version"]) == ("under-test", naiad.__version__)
    assert set(metadata["extensions"]) >= EXTENSIONS
    assert len(set(metadata["extensions"])) == len(metadata["extensions"])


def test_model_metadata_has_shapes_with_a_leading_batch_dimension(client):
    assert client.get_model_metadata("two") == {
        "name": "two",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "A", "datatype": "FP32", "shape": [-1, -1]}, {"name": "B", "datatype": "INT32", "shape": [-1, -1]}],
        "outputs": [
            {"name": "YA", "datatype": "FP32", "shape": [-1, -1]},
            {"name": "YB", "datatype": "INT32", "shape": [-1, -1]},
        ],
    }


def test_model_metadata_without_batching_has_the_dims_as_they_are(client):
    assert client.get_model_metadata("img0")["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [3, 4, -1]}]


def test_optional_inputs_are_listed_like_others(client):
    names = [item["name"] for item in client.get_model_metadata("gen")["inputs"]]
    assert names == ["text_input", "stop_words", "n", "bias", "half"]


def test_string_tensors_are_called_bytes(client):
    assert client.get_model_metadata("echo_bytes")["inputs"][0]["datatype"] == "BYTES"


def test_metadata_lists_the_ready_versions_or_the_one_asked_for(client):
    assert client.get_model_metadata("versions")["versions"] == ["3", "12"]
    assert client.get_model_metadata("versions", "3")["versions"] == ["3"]


def test_without_a_version_the_numerically_greatest_answers(infer):
    assert infer("versions", [1.0]).json()["model_version"] == "12"


def test_a_version_that_the_policy_leaves_out_is_not_served(client):
    with pytest.raises(InferenceServerException, match="'versions' version 1 is not found"):
        client.get_model_metadata("versions", "1")


@pytest.mark.parametrize("path", ["/v2", "/v2/models/echo", "/v2/models/echo/config", "/v2/models/echo/stats"])
def test_answers_are_json(ask, path):
    assert ask("GET", path).headers["content-type"] == "application/json"


def test_a_configuration_has_every_plain_member(client):
    config = client.get_model_config("echo")
    assert set(config) >= ALWAYS
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("echo", "identity", 8)


def test_a_configuration_is_completed_with_the_defaults(client):
    config = client.get_model_config("echo")
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["optimization"]["input_pinned_memory"] == {"enable": True}
    assert config["optimization"]["output_pinned_memory"] == {"enable": True}
    group = config["instance_group"][0]
    assert (group["name"], group["kind"], group["count"]) == ("echo", "KIND_CPU", 1)


def test_enums_are_names_and_sizes_are_numbers(client):
    item = client.get_model_config("fixed")["input"][0]
    assert (item["data_type"], item["dims"], item["format"]) == ("TYPE_FP32", [16], "FORMAT_NONE")


def test_messages_that_are_not_set_are_left_out(client):
    config = client.get_model_config("echo")
    assert not {"dynamic_batching", "sequence_batching", "ensemble_scheduling"} & set(config)


def test_a_configuration_is_the_same_for_each_version(client):
    assert client.get_model_config("versions", "3") == client.get_model_config("versions", "12")


def test_statistics_count_requests_inferences_and_executions(client, ask):
    before = client.get_inference_statistics("fixed")["model_stats"][0]
    item = {"name": "X", "shape": [3, 16], "datatype": "FP32", "data": [0.0] * 48}
    assert ask("POST", "/v2/models/fixed/infer", {"inputs": [item]}).status_code == 200
    after = client.get_inference_statistics("fixed")["model_stats"][0]
    assert (after["name"], after["version"]) == ("fixed", "1")
    assert after["inference_count"] - before["inference_count"] == 3
    assert after["execution_count"] - before["execution_count"] == 1
    assert after["last_inference"] > 1_600_000_000_000
    for kind in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][kind]["count"] - before["inference_stats"][kind]["count"] == 1
        assert after["inference_stats"][kind]["ns"] >= before["inference_stats"][kind]["ns"]
    assert 3 in [batch["batch_size"] for batch in after["batch_stats"]]


def test_a_request_that_is_refused_by_its_shape_is_in_no_statistics(client, infer):
    before = client.get_inference_statistics("fixed")
    assert infer("fixed", [1.0], shape=[1, 1]).status_code == 400
    assert client.get_inference_statistics("fixed") == before


def test_statistics_without_a_version_have_an_entry_for_each_ready_one(client):
    entries = client.get_inference_statistics("versions")["model_stats"]
    assert [(entry["name"], entry["version"]) for entry in entries] == [("versions", "3"), ("versions", "12")]
    assert [entry["version"] for entry in client.get_inference_statistics("versions", "3")["model_stats"]] == ["3"]


def test_statistics_without_a_model_have_every_ready_model(client):
    names = {entry["name"] for entry in client.get_inference_statistics()["model_stats"]}
    assert names >= {"echo", "echo0", "two", "gen", "versions"}


def test_statistics_of_unknown_models_and_versions_are_400(ask, error):
    assert error(ask("GET", "/v2/models/nobody/stats")) == "requested model 'nobody' is not available"
    text = error(ask("GET", "/v2/models/versions/versions/1/stats"))
    assert text == "requested model version is not available for model 'versions'"
