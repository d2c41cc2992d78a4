"""`auto_complete_config`: what it may add to a config, what it may not change, and what its faults are called."""

from __future__ import annotations

import re

import pytest
import requests
from python_models.completing import LOADED, REFUSED, write_all
from server_process import ServerProcess

NAMES = [f"{each.way}_{number}" for number, each in enumerate(LOADED)]
REFUSED_NAMES = [f"{each.way}_{number}" for number, each in enumerate(REFUSED)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, serve_for_module) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_all(repository, LOADED)
    return serve_for_module(repository)


@pytest.fixture(scope="module")
def reasons(tmp_path_factory, serve_for_module) -> dict[str, str]:
    """Why each model isn't loaded."""
    repository = tmp_path_factory.mktemp("refused")
    write_all(repository, REFUSED)
    server = serve_for_module(repository, "--exit-on-error=false")
    index = requests.post(f"{server.url}/v2/repository/index", timeout=5).json()
    assert {model["state"] for model in index} == {"UNAVAILABLE"}
    return {model["name"]: model["reason"] for model in index}


@pytest.mark.parametrize(("name", "completion"), list(zip(NAMES, LOADED)), ids=NAMES)
def test_what_it_adds_is_the_models_config(loaded, name, completion):
    config = requests.get(f"{loaded.url}/v2/models/{name}/config", timeout=5).json()
    assert config["max_batch_size"] == completion.batch
    assert sorted(each["name"] for each in config["input"]) == sorted(completion.inputs)
    assert [(each["name"], each["data_type"], each["dims"]) for each in config["output"]] == [("Y", "TYPE_FP32", [-1])]
    assert ("dynamic_batching" in config) == completion.is_batched
    is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
    assert is_decoupled == (completion.way == "decoupled")


def test_an_input_may_be_optional(loaded):
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [3]}]}
    assert loaded.infer("optional_input_2", body).json()["outputs"][0]["data"] == [3]


@pytest.mark.parametrize(("name", "completion"), list(zip(REFUSED_NAMES, REFUSED)), ids=REFUSED_NAMES)
def test_a_fault_of_it_is_the_reason_why_the_model_is_not_loaded(reasons, name, completion):
    assert re.search(completion.error, reasons[name]), reasons[name]
    assert name in reasons[name]


def test_without_auto_completion_it_is_not_asked(tmp_path, serve):
    write_all(tmp_path / "models", LOADED[:1])
    server = serve(tmp_path / "models", "--disable-auto-complete-config")
    config = requests.get(f"{server.url}/v2/models/everything_0/config", timeout=5).json()
    assert (config["max_batch_size"], config["input"], config["output"]) == (0, [], [])
