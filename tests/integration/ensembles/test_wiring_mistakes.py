"""Case 17: each mistake in an ensemble's wiring is said where it is, in the answer of the load, in the index and in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from model_folders import identity, write_model
from server_process import ServerProcess

BASE = """platform: "ensemble" max_batch_size: 8
input { name: "in" data_type: TYPE_FP32 dims: -1 }
output { name: "ob" data_type: TYPE_FP32 dims: -1 }
output { name: "oc" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step { model_name: "A" model_version: -1 input_map { key: "X" value: "in" } output_map { key: "Y" value: "feats" } }
  step { model_name: "B" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "ob" } }
  step { model_name: "C" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "oc" } }
}
"""


def changed(number: int, old: str, new: str, text: str = BASE) -> str:
    """Return the ensemble with a change in one step."""
    lines = text.splitlines()
    assert old in lines[4 + number]
    lines[4 + number] = lines[4 + number].replace(old, new)
    return "\n".join(lines)


INT32 = BASE.replace('"ob" data_type: TYPE_FP32', '"ob" data_type: TYPE_INT32')
OF_THREE = BASE.replace('"ob" data_type: TYPE_FP32 dims: -1', '"ob" data_type: TYPE_FP32 dims: 3')
MISSPELT = changed(2, '"feats"', '"feat"')

# For each: what the reason has to name.
MISTAKES = {
    "1": (MISSPELT, ["step 2 (model 'B')", "tensor 'feat'", "did you mean 'feats'?"]),
    "2": (changed(3, 'key: "X"', 'key: "x"'), ["step 3 (model 'C')", "input_map has key 'x'", "did you mean 'X'?"]),
    "3": (changed(3, 'key: "Y"', 'key: "y"'), ["step 3 (model 'C')", "output_map has key 'y'", "did you mean 'Y'?"]),
    "4": (changed(2, '"B"', '"two"'), ["step 2 (model 'two')", "input 'W' of the model is not in input_map"]),
    "5": (BASE + 'output { name: "od" data_type: TYPE_FP32 dims: -1 }', ["output tensor 'od'", "nor written by any step"]),
    "6": (BASE + 'input { name: "Z" data_type: TYPE_FP32 dims: -1 }', ["input 'Z' is not used by any step"]),
    "7": (changed(3, '"oc"', '"ob"'), ["step 3 (model 'C') writes tensor 'ob'", "it is written by step 2 (model 'B') already"]),
    "8": (INT32, ["tensor 'ob' is TYPE_FP32 from output 'Y' of model 'B', but TYPE_INT32 as the ensemble's output"]),
    "9": (changed(2, '"B"', '"four"', OF_THREE), ["tensor 'ob' has shape [-1,4] from output 'Y' of model 'four', but [-1,3]"]),
    "10": (BASE.replace("size: 8", "size: 16"), ["step 2 (model 'B') takes batches of 8 at most, the ensemble 16"]),
    "11": (changed(2, '"B"', '"BB"'), ["BB (step 2)", "did you mean 'B'?"]),
    "12": (changed(2, '"B"', '"bad"'), ["'bad'", "(step 2)", "needs as many outputs as inputs, got 1 inputs and 0 outputs"]),
    "13": (changed(1, '"in"', '"oc"'), ["circle", "steps 1 (model 'A'), 3 (model 'C') wait for each other"]),
    "14": (changed(2, "model_version: -1", ""), ["step 2 (model 'B') wants version 0", "set model_version: -1"]),
    "two of the ensemble": (
        changed(3, '"oc"', '"ob"', MISSPELT),
        ["step 2 (model 'B')", "did you mean 'feats'?", "step 3 (model 'C') writes tensor 'ob'", "mistakes:"],
    ),
    "two with its models": (
        changed(3, 'key: "Y"', 'key: "y"', changed(2, 'key: "X"', 'key: "x"')),
        ["step 2 (model 'B')", "did you mean 'X'?", "step 3 (model 'C')", "did you mean 'Y'?", "mistakes:"],
    ),
}
# Several steps read one tensor; a step without batches in an ensemble with batches.
RIGHT = {"right": BASE, "15": changed(2, '"B"', '"plain"')}


def ensemble(name: str) -> str:
    return f"e-{name.replace(' ', '-')}"


def write_models(folder: Path) -> None:
    for name in "ABC":
        identity(folder, name)
    identity(folder, "four", dims="4")
    identity(folder, "plain", max_batch_size=0, dims="-1, -1")
    tensor = '{{ name: "{}" data_type: TYPE_FP32 dims: [ -1 ] }}'.format
    two = f"input [{tensor('X')}, {tensor('W')}] output [{tensor('Y')}, {tensor('V')}]"
    write_model(folder, "two", f'backend: "identity" max_batch_size: 8 {two}')
    write_model(folder, "bad", f'backend: "identity" max_batch_size: 8 input [{tensor("X")}]')
    for name, text in [*RIGHT.items(), *((name, text) for name, (text, _) in MISTAKES.items())]:
        write_model(folder, ensemble(name), text)


@pytest.fixture(scope="module")
def server(serve_for_module, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return serve_for_module(folder, "--model-control-mode=explicit")


def load(server: ServerProcess, name: str) -> requests.Response:
    return requests.post(f"{server.url}/v2/repository/models/{name}/load", timeout=10)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_the_answer_the_index_and_the_log(server: ServerProcess, name: str) -> None:
    answer = load(server, ensemble(name))
    assert answer.status_code == 400
    index = requests.post(f"{server.url}/v2/repository/index", timeout=10).json()
    [entry] = [entry for entry in index if entry["name"] == ensemble(name)]
    assert entry["state"] == "UNAVAILABLE"
    log = "\n".join(server.errors)
    start = log.rindex(f"failed to load '{ensemble(name)}'")
    for said in MISTAKES[name][1]:
        assert [said in text for text in (answer.json()["error"], entry["reason"], log[start:])] == [True] * 3, said


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_no_mistake_is_loaded(server: ServerProcess, name: str) -> None:
    assert load(server, ensemble(name)).status_code == 200
    body = {"inputs": [{"name": "in", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    outputs = {output["name"]: output["data"] for output in server.infer(ensemble(name), body).json()["outputs"]}
    assert outputs == {"ob": [1, 2], "oc": [1, 2]}
