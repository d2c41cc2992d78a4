"""Where batch strategies are found, and that what is wrong with one is told with file and line when its model is loaded."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from batching_plans import make_plan
from model_folders import identity
from plans import plan as make_model_plan

from naiad.backends.table import BackendTable
from naiad.config.plan import ModelPlan
from naiad.errors import Code, InferenceServerError
from naiad.repository.check.steps import CheckSettings, check_source
from naiad.repository.layout import ModelSource
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.strategies.importing import load_strategy

GOOD = """
class BatchStrategy:
    def __init__(self, config):
        self.config = config

    def begin(self):
        return None

    def include(self, batch, request):
        return True
"""
KEY = "TRITON_BATCH_STRATEGY_PATH"


def folder(tmp_path: Path, parameter: str = "", has_batching: bool = True) -> ModelPlan:
    (tmp_path / "m" / "1").mkdir(parents=True, exist_ok=True)
    parameters = {KEY: parameter} if parameter else {}
    return replace(
        make_model_plan([], [], 8, parameters=parameters),
        directory=tmp_path / "m",
        version_directory=tmp_path / "m" / "1",
        dynamic_batching=make_plan() if has_batching else None,
        config={"name": "m", "parameters": {"limit": {"string_value": "5"}}},
    )


def failed(plan: ModelPlan) -> str:
    with pytest.raises(InferenceServerError) as caught:
        load_strategy(plan)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_a_model_without_one_has_none(tmp_path):
    assert load_strategy(folder(tmp_path)) is None
    assert load_strategy(folder(tmp_path, has_batching=False)) is None


def test_the_file_of_the_parameter_goes_before_that_of_the_version_and_that_before_the_models(tmp_path):
    plan = folder(tmp_path)
    paths = [plan.directory / "batchstrategy.py", plan.version_directory / "batchstrategy.py", plan.directory / "lib" / "my.py"]
    paths[2].parent.mkdir()
    for path in paths[:2]:
        path.write_text(GOOD)
        assert load_strategy(plan)[1] == str(path)
    paths[2].write_text(GOOD)
    for text in ("lib/my.py", str(paths[2])):
        assert load_strategy(folder(tmp_path, text))[1] == str(paths[2])


def test_it_gets_the_models_configuration_as_a_dict_of_its_own(tmp_path):
    plan = folder(tmp_path)
    (plan.directory / "batchstrategy.py").write_text(GOOD)
    strategy, _ = load_strategy(plan)
    assert strategy.config == plan.config
    strategy.config["parameters"]["limit"] = 6
    assert plan.config["parameters"]["limit"] == {"string_value": "5"}


def test_each_load_runs_the_file_as_it_is_and_leaves_nothing_behind(tmp_path):
    plan = folder(tmp_path)
    path = plan.directory / "batchstrategy.py"
    before = set(sys.modules)
    answers = []
    for answer in ("True ", "False"):
        path.write_text(GOOD.replace("return True", f"return {answer}"))
        answers.append(load_strategy(plan)[0].include(None, SimpleNamespace()))
    assert answers == [True, False]
    assert set(sys.modules) == before
    assert sorted(file.name for file in plan.directory.iterdir()) == ["1", "batchstrategy.py"]


def test_a_file_may_have_dataclasses_with_annotations_as_text(tmp_path):
    plan = folder(tmp_path)
    code = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass B:\n    x: int = 0\n"
    (plan.directory / "batchstrategy.py").write_text(code + GOOD)
    assert load_strategy(plan) is not None


@pytest.mark.parametrize(
    ("code", "line", "text"),
    [
        ("class BatchStrategy(:\n", 1, "SyntaxError: "),
        ("import none_of_the_kind\n", 1, "ModuleNotFoundError: No module named 'none_of_the_kind'"),
        ("\nraise SystemExit(3)\n", 2, "SystemExit: 3"),
        (GOOD.replace("self.config = config", "self.limit = config['none']"), 4, "KeyError: 'none'"),
        (
            GOOD.replace("(self, config)", "(self)").replace("self.config = config", "pass"),
            3,
            "__init__ must take what __init__(self, config) takes: too",
        ),
        (GOOD.replace("BatchStrategy", "Strategy"), None, "has no class BatchStrategy"),
        (GOOD.replace("begin", "start"), 3, "class BatchStrategy has no method begin(self)"),
        (GOOD.replace("include", "joins"), 3, "class BatchStrategy has no method include(self, batch, request)"),
        (GOOD.replace("batch, request", "request"), 9, "include must take what include(self, batch, request) takes: too many"),
        (GOOD.replace("begin(self)", "begin(self, size)"), 6, "begin must take what begin(self) takes: missing a required"),
        (GOOD.replace("def include", "async def include"), 9, "include must be a plain method"),
        (GOOD.replace("return True", "yield True"), 9, "include must be a plain method"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_line(tmp_path, code, line, text):
    plan = folder(tmp_path)
    path = plan.directory / "batchstrategy.py"
    path.write_text(code)
    before = set(sys.modules)
    place = path if line is None else f"{path}, line {line}"
    assert failed(plan).startswith(f"model 'm' version 1: batch strategy {place}: {text}")
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ("libs/batch.so", "must name a Python file with a class BatchStrategy in the model's folder (shared libraries aren't"),
        ("none.py", "there is no such file in "),
        ("../other.py", "lies outside of the model's folder "),
        ("link.py", "lies outside of the model's folder "),
        ("nul\0.py", "there is no such file in "),
    ],
)
def test_a_parameter_that_names_no_python_file_in_the_folder_is_refused(tmp_path, parameter, text):
    plan = folder(tmp_path, parameter)
    (tmp_path / "other.py").write_text(GOOD)
    (plan.directory / "link.py").symlink_to(tmp_path / "other.py")
    assert failed(plan).startswith(f"model 'm': parameter '{KEY}' is '{parameter}', {text}")


def test_a_strategy_without_dynamic_batching_is_refused(tmp_path):
    plan = folder(tmp_path, has_batching=False)
    (plan.directory / "batchstrategy.py").write_text(GOOD)
    assert re.search(r"batchstrategy.py, which needs dynamic_batching in the configuration: add", failed(plan))


def test_a_shared_library_where_triton_looks_for_one_is_refused_where_it_would_be_used(tmp_path):
    (folder(tmp_path).version_directory / "batchstrategy.so").touch()
    assert "shared libraries aren't supported: write it as batchstrategy.py" in failed(folder(tmp_path))
    assert load_strategy(folder(tmp_path, has_batching=False)) is None


def test_a_version_has_its_strategy_with_its_copies_or_before_they_are_loaded(tmp_path):
    path = identity(tmp_path, "m", more="dynamic_batching { }")
    (path / "batchstrategy.py").write_text(GOOD)
    loader = Loader(BackendTable(others=()), LoadSettings(True, {}), SimpleNamespace())
    prepared = loader.prepare(ModelSource("m", path, path / "config.pbtxt", {1: path / "1"}))
    loaded, parked = loader.load(prepared, 1), loader.plan_only(prepared, 1)
    loader.close(loaded.instances)
    for version in (loaded, parked):
        strategy, place = version.strategy
        assert (strategy.config["name"], place) == ("m", str(path / "batchstrategy.py"))


@pytest.mark.parametrize(("may_run_code", "expected"), [(False, []), (True, ["line 2: SystemExit: 3"])])
def test_a_check_runs_the_file_only_where_it_may_run_code(tmp_path, may_run_code, expected):
    path = identity(tmp_path, "m", more="dynamic_batching { }")
    (path / "batchstrategy.py").write_text("\nraise SystemExit(3)\n")
    settings = CheckSettings(BackendTable(others=()), LoadSettings(True, {}), SimpleNamespace() if may_run_code else None)
    checked = check_source(ModelSource("m", path, path / "config.pbtxt", {1: path / "1"}), settings)
    assert [error.text.split("batchstrategy.py, ")[1] for error in checked.errors] == expected


def test_a_check_finds_a_strategy_without_dynamic_batching(tmp_path):
    path = identity(tmp_path, "m")
    (path / "batchstrategy.py").write_text("raise SystemExit(3)")
    settings = CheckSettings(BackendTable(others=()), LoadSettings(True, {}))
    [error] = check_source(ModelSource("m", path, path / "config.pbtxt", {1: path / "1"}), settings).errors
    assert "which needs dynamic_batching in the configuration" in error.text
