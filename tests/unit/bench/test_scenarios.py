"""The scenarios, the repositories they are served from, and the line in which Naiad says where it listens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.errors import BenchError, Unavailable
from bench.models.repository import config_text, write_repository
from bench.onnx.share import split_cores
from bench.scenarios import (
    ENGINE_SCENARIOS,
    ENSEMBLE,
    FAMILIES,
    IDENTITY,
    IDENTITY_BATCHED,
    VARIANTS,
    chosen_names,
    naiad_identity,
    scenario_names,
    triton_identity,
    variants_of,
)
from bench.servers import bound_to, listening_port
from bench.triton_setup import is_ready, mark_ready, only_file, run_step


def test_scenario_names_are_unique() -> None:
    assert len(set(scenario_names())) == len(scenario_names())


def test_no_wish_means_all_scenarios() -> None:
    assert chosen_names(()) == frozenset(scenario_names())
    assert chosen_names(("footprint",)) == frozenset({"footprint"})


def test_an_unknown_scenario_is_named_with_what_is_allowed() -> None:
    with pytest.raises(BenchError, match=r"--scenario nonsense: .*identity-binary-c1, .*footprint"):
        chosen_names(("footprint", "nonsense"))


def test_each_naiad_model_has_a_name_of_its_own() -> None:
    names = [naiad_identity(family, variant).name for family in FAMILIES for variant in VARIANTS]
    assert len(set(names)) == len(names)


def test_both_servers_get_the_same_config_but_for_name_backend_and_placement() -> None:
    ours = config_text(naiad_identity(IDENTITY_BATCHED, VARIANTS[0])).splitlines()
    theirs = config_text(triton_identity(IDENTITY_BATCHED)).splitlines()
    assert [line for line in ours if line not in theirs] == [
        'name: "identity_batched_in_place"',
        'backend: "identity"',
        'parameters { key: "naiad_placement" value { string_value: "in_place" } }',
    ]
    assert [line for line in theirs if line not in ours] == ['name: "identity_batched"', 'backend: "python"']


def test_a_repository_is_made_anew_with_a_version_folder_and_the_model_s_file(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    write_repository(root, (naiad_identity(IDENTITY, VARIANTS[0]),))
    write_repository(root, (triton_identity(IDENTITY),))
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert files == ["identity/1/model.py", "identity/config.pbtxt"]
    assert "dynamic_batching" not in (root / "identity" / "config.pbtxt").read_text()


def test_onnx_models_are_the_steps_of_ensembles_only() -> None:
    onnx = next(each for each in VARIANTS if each.is_step)
    assert onnx in variants_of(ENSEMBLE, VARIANTS)
    assert onnx not in variants_of(IDENTITY, VARIANTS)
    step = naiad_identity(ENSEMBLE, onnx).step
    assert step is not None
    assert (step.backend, step.file_name, step.make_file is None) == ("onnxruntime", "model.onnx", False)


@pytest.mark.parametrize("scenario", ENGINE_SCENARIOS, ids=lambda scenario: scenario.name)
def test_an_engine_scenario_sends_the_same_item_every_time_with_a_batch_dimension_when_it_batches(scenario) -> None:
    item = scenario.item()
    np.testing.assert_array_equal(item, scenario.item())
    assert item.shape == ((1, *scenario.input.dims) if scenario.is_batching else scenario.input.dims)
    assert scenario.concurrency == 2 * scenario.batch


@pytest.mark.parametrize(
    ("output", "port"),
    [
        ("", None),
        ("loading\n", None),
        ('NAIAD_LISTENING {"http": "127.0.0.1:41233", "metr', None),
        ('loading\nNAIAD_LISTENING {"http": "127.0.0.1:41233", "metrics": "127.0.0.1:41234"}\nmore', 41233),
        ('NAIAD_LISTENING {"http": "[::1]:5"}\n', 5),
    ],
)
def test_the_port_is_read_from_the_listening_line_once_it_is_whole(output: str, port: int | None) -> None:
    assert listening_port(output) == port


def test_cores_are_split_between_server_and_load_unless_there_is_only_one() -> None:
    assert split_cores([2, 3, 5]) == ((2,), (3, 5))
    assert split_cores([0]) == ((), ())
    assert bound_to((3, 5)) == ["taskset", "--cpu-list", "3,5"]
    assert bound_to(()) == []


def test_an_installation_counts_only_when_it_was_ended_and_holds_what_is_wanted(tmp_path: Path) -> None:
    assert not is_ready(tmp_path, "triton==1")
    mark_ready(tmp_path, "triton==1")
    assert is_ready(tmp_path, "triton==1")
    assert not is_ready(tmp_path, "triton==2")


def test_a_failed_installation_step_says_what_failed(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no-such-command-here is not installed"):
        run_step(["no-such-command-here"])
    with pytest.raises(Unavailable, match=r"`sh -c echo broken; exit 3` failed: broken"):
        run_step(["sh", "-c", "echo broken; exit 3"])
    with pytest.raises(Unavailable, match=r"model\.onnx is not where it was expected"):
        only_file(tmp_path, "model.onnx")


@pytest.mark.parametrize(
    "model", [naiad_identity(ENSEMBLE, VARIANTS[0]), triton_identity(ENSEMBLE)], ids=lambda model: model.name
)
def test_an_ensemble_runs_its_step_so_many_times_from_input_to_output(tmp_path: Path, model) -> None:
    write_repository(tmp_path, (model,))
    assert sorted(path.name for path in tmp_path.iterdir()) == [model.name, f"{model.name}_step"]
    lines = (tmp_path / model.name / "config.pbtxt").read_text().splitlines()
    assert [line for line in lines if line.startswith("step")] == [
        f'step {{ model_name: "{model.name}_step" model_version: -1 input_map {{ key: "INPUT0" value: "{before}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{after}" }} }}'
        for before, after in (("INPUT0", "between1"), ("between1", "between2"), ("between2", "OUTPUT0"))
    ]
