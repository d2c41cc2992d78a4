"""Ensembles and the life of their steps' models: order of loading, what is refused, unloads, reloads, readiness."""

from __future__ import annotations

import shutil
from pathlib import Path

import controlled_models
import ensembles
import model_folders
import pytest
import requests
from server_process import ServerProcess
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"


def control(server: ServerProcess, action: str, name: str, **parameters: object) -> requests.Response:
    url = f"{server.url}/v2/repository/models/{name}/{action}"
    return requests.post(url, json={"parameters": parameters}, timeout=15)


def index(server: ServerProcess) -> dict[str, str]:
    entries = requests.post(f"{server.url}/v2/repository/index", json={}, timeout=10).json()
    return {entry["name"]: entry.get("state", "") for entry in entries}


def reason(server: ServerProcess, name: str) -> str:
    entries = requests.post(f"{server.url}/v2/repository/index", json={}, timeout=10).json()
    return next(entry["reason"] for entry in entries if entry["name"] == name)


def is_ready(server: ServerProcess, name: str) -> bool:
    return requests.get(f"{server.url}/v2/models/{name}/ready", timeout=10).status_code == 200


def ask(server: ServerProcess, name: str) -> requests.Response:
    return server.infer(name, {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})


def test_an_ensemble_waits_for_the_models_of_its_steps(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    controlled_models.ValueModel(repository, "z_slow", sleep_s=1, value=3)
    model_folders.identity(repository, "echo", dims="1")
    ensembles.chain(repository, "b_inner", ["echo", "z_slow"], 4)
    ensembles.chain(repository, "a_outer", ["b_inner", "echo"], 4)
    server = serve(repository)
    assert ask(server, "a_outer").json()["outputs"][0]["data"] == [3.0]


def test_loading_an_ensemble_loads_its_models_and_unload_dependents_unloads_them(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    for name in ("own", "shared"):
        model_folders.identity(repository, name)
    ensembles.chain(repository, "first", ["own", "shared"])
    ensembles.chain(repository, "second", ["shared", "shared"])
    server = serve(repository, EXPLICIT, "--load-model=first")
    assert index(server) == {"first": "READY", "own": "READY", "shared": "READY", "second": ""}
    assert control(server, "load", "second").status_code == 200
    assert control(server, "unload", "first", unload_dependents=True).status_code == 200
    wait_until(lambda: index(server)["own"] == "UNAVAILABLE", what="the unload of what only the first needs")
    assert (index(server)["shared"], index(server)["second"]) == ("READY", "READY")
    assert control(server, "load", "first").status_code == 200
    assert control(server, "unload", "shared", unload_dependents=True).status_code == 200
    wait_until(lambda: {index(server)[name] for name in ("first", "second", "shared")} == {"UNAVAILABLE"})
    assert index(server)["own"] == "READY"


def test_an_ensemble_is_ready_as_long_as_its_models_are(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model_folders.identity(repository)
    ensembles.chain(repository, "inner", ["echo", "echo"])
    ensembles.chain(repository, "outer", ["inner", "inner"])
    server = serve(repository, EXPLICIT, "--load-model=*")
    assert is_ready(server, "outer")
    assert control(server, "unload", "echo").status_code == 200
    wait_until(lambda: not is_ready(server, "outer"), what="the end of readiness")
    assert "contains models that are not available: echo" in reason(server, "inner")
    refused = ask(server, "inner")
    assert refused.status_code == 503
    assert "ensemble inner contains models that are not available: echo" in refused.json()["error"]
    assert "inner" in ask(server, "outer").json()["error"]
    assert control(server, "load", "echo").status_code == 200
    assert is_ready(server, "outer")
    assert ask(server, "outer").status_code == 200


def test_reloads_of_a_model_fail_no_request_of_its_ensemble_and_take_effect(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model = controlled_models.ValueModel(repository)
    model_folders.identity(repository, "echo", dims="1")
    ensembles.chain(repository, "ens", ["echo", "ver", "echo"], 4)
    server = serve(repository, EXPLICIT, "--load-model=*")
    with controlled_models.Traffic(server, "ens", 3) as traffic:
        for value in (2, 3, 4):
            model.write_version(1, value)
            assert control(server, "load", "ver").status_code == 200
            traffic.wait_round()
            assert {answers[-1] for answers in traffic.answers} == {value}
    assert traffic.failures == []


def test_a_model_that_changes_so_that_it_no_longer_fits_is_told(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model_folders.identity(repository)
    model_folders.identity(repository, "other")
    ensembles.chain(repository, "ens", ["echo", "other"])
    server = serve(repository, EXPLICIT, "--load-model=*")
    model_folders.identity(repository, "other", "INT32")
    assert control(server, "load", "other").status_code == 200
    assert not is_ready(server, "ens")
    assert "tensor 't1' is TYPE_FP32 from output 'Y' of model 'echo', but TYPE_INT32" in reason(server, "ens")
    model_folders.identity(repository, "other")
    assert control(server, "load", "other").status_code == 200
    assert ask(server, "ens").status_code == 200


def test_a_cached_ensemble_answers_anew_after_a_reload_of_a_model(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model = controlled_models.ValueModel(repository)
    model_folders.identity(repository, "echo", dims="1")
    ensembles.chain(repository, "inner", ["echo", "ver"], 4)
    ensembles.chain(repository, "outer", ["inner", "echo"], 4, more="response_cache { enable: true }")
    server = serve(repository, EXPLICIT, "--load-model=*", "--cache-config=local,size=1000000")
    assert [ask(server, "outer").json()["outputs"][0]["data"] for _ in range(2)] == [[1.0], [1.0]]
    assert server.metric("nv_cache_num_hits_per_model", model="outer") == 1
    model.write_version(1, 2)
    assert control(server, "load", "ver").status_code == 200
    assert ask(server, "outer").json()["outputs"][0]["data"] == [2.0]


def failed_load(tmp_path: Path, serve, text: str, models: tuple[str, ...] = ("A", "B", "C")) -> str:
    """Return why the ensemble with this config can't be loaded."""
    repository = tmp_path / "models"
    for name in models:
        model_folders.identity(repository, name, dims="4")
    model_folders.write_model(repository, "ens", text)
    server = serve(repository, EXPLICIT, *(f"--load-model={name}" for name in models))
    answer = control(server, "load", "ens")
    assert answer.status_code == 400, answer.text
    # A client, the index and the log say the same.
    assert reason(server, "ens") in answer.json()["error"]
    wait_until(lambda: all(line in server.log() for line in reason(server, "ens").splitlines()), what="the reason in the log")
    assert ask(server, "A").status_code == 400
    return reason(server, "ens")


def base(**more: object) -> str:
    """The config of cases/17; `more` is in place of its parts."""
    tensor, step = ensembles.tensor, ensembles.step
    parts = {
        "inputs": [tensor("X", dims="4")],
        "outputs": [tensor("ob", dims="4"), tensor("oc", dims="4")],
        "a": step("A", {"X": "X"}, {"Y": "feats"}),
        "b": step("B", {"X": "feats"}, {"Y": "ob"}),
        "c": step("C", {"X": "feats"}, {"Y": "oc"}),
        "size": 8,
        **more,
    }
    return ensembles.config(parts["inputs"], parts["outputs"], [parts["a"], parts["b"], parts["c"]], parts["size"])


def test_every_mistake_of_the_wiring_is_named_at_once(tmp_path: Path, serve) -> None:
    tensor, step = ensembles.tensor, ensembles.step
    found = failed_load(
        tmp_path,
        serve,
        base(
            outputs=[tensor("ob", "INT32", "4"), tensor("oc", dims="4"), tensor("od", dims="4")],
            b=step("B", {"X": "feat"}, {"Y": "ob"}),
            c=step("C", {"x": "feats"}, {"Y": "oc"}, version=None),
        ),
    )
    assert "did you mean 'feats'?" in found
    assert "'od'" in found


def test_mistakes_against_the_models_are_named_at_once(tmp_path: Path, serve) -> None:
    step, tensor = ensembles.step, ensembles.tensor
    outputs = [tensor("ob", "INT32", "4"), tensor("oc", dims="3")]
    found = failed_load(
        tmp_path,
        serve,
        base(outputs=outputs, c=step("C", {"x": "feats"}, {"Y": "oc"}, version=None), size=16),
    )
    expected = (
        "input_map has key 'x', which is not an input of the model; did you mean 'X'?",
        "tensor 'ob' is TYPE_FP32 from output 'Y' of model 'B', but TYPE_INT32 as the ensemble's output",
        "tensor 'oc' has shape [-1,4] from output 'Y' of model 'C', but [-1,3] as the ensemble's output",
        "step 1 (model 'A') takes batches of 8 at most, the ensemble 16",
        "step 3 (model 'C') wants version 0 of the model, loaded are: 1; set model_version: -1 for the latest",
    )
    assert [text for text in expected if text not in found] == []


@pytest.mark.parametrize("is_there", [False, True])
def test_a_step_without_its_model(tmp_path: Path, serve, is_there: bool) -> None:
    if is_there:
        model_folders.write_model(tmp_path / "models", "D", 'backend: "identity" max_batch_size: -1')
    found = failed_load(tmp_path, serve, base(c=ensembles.step("D", {"X": "feats"}, {"Y": "oc"})))
    if is_there:
        assert "ensemble 'ens' depends on 'D' which has no loaded version. Model 'D' loading failed with error: " in found
        assert "'max_batch_size' must be non-negative value for D, got -1" in found
    else:
        assert "ensemble ens contains models that are not available or ambiguous: D (step 3)" in found


def test_ensembles_that_run_each_other_are_refused_and_the_others_serve(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model_folders.identity(repository)
    ensembles.chain(repository, "one", ["echo", "two"])
    ensembles.chain(repository, "two", ["one", "echo"])
    ensembles.chain(repository, "three", ["three"])
    ensembles.chain(repository, "right", ["echo"])
    server = serve(repository, "--exit-on-error=false", "--strict-readiness=false")
    assert index(server)["right"] == "READY"
    assert "circular dependency between ensembles: three -> three" in reason(server, "three")
    both = reason(server, "one") + reason(server, "two")
    assert "circular dependency between ensembles: " in both
    assert "depends on" in both


def test_a_model_that_comes_later_completes_an_ensemble_in_poll_mode(tmp_path: Path, serve) -> None:
    repository = tmp_path / "models"
    model_folders.identity(repository)
    ensembles.chain(repository, "ens", ["echo", "late"])
    model_folders.identity(tmp_path / "elsewhere", "late")
    server = serve(
        repository, "--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false", "--strict-readiness=false"
    )
    assert index(server)["ens"] == "UNAVAILABLE"
    shutil.copytree(tmp_path / "elsewhere/late", repository / "late")
    wait_until(lambda: index(server)["ens"] == "READY", what="the ensemble")
    assert ask(server, "ens").status_code == 200
