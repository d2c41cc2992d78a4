"""`naiad check`: all mistakes of all models at once with their places; the same yes and no as the server."""

from __future__ import annotations

import json
from pathlib import Path

import model_folders
import onnx_models
import pytest

from naiad.cli.main import run

ENSEMBLE = """platform: "ensemble"
max_batch_size: 8
input { name: "in" data_type: TYPE_FP32 dims: -1 }
output { name: "ob" data_type: TYPE_FP32 dims: -1 }
output { name: "oc" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step { model_name: "A" model_version: -1 input_map { key: "X" value: "in" } output_map { key: "Y" value: "feats" } }
  step { model_name: "B" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "ob" } }
  step { model_name: "C" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "oc" } }
}
"""


def write(repository: Path, name: str, config: str) -> Path:
    return model_folders.write_model(repository, name, config) / "config.pbtxt"


def checked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    code = run(["check", "--format", "json", *map(str, arguments)])
    return code, json.loads(capsys.readouterr().out)


def test_a_right_model_is_shown_with_its_plan_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_models.save(onnx_models.sum_and_difference(), tmp_path / "sums/2/model.onnx")
    code, report = checked(capsys, tmp_path)
    assert (code, report["ok"]) == (0, True)
    model = report["models"][0]
    assert model["errors"] == []
    assert model["plan"] == {
        "backend": "onnxruntime",
        "versions": [2],
        "batching": "dynamic, max_batch_size 4, preferred 4, queue delay 0 µs",
        "inputs": [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in ("a", "b")],
        "outputs": [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in ("sum", "difference")],
        "instances": [{"name": f"sums_{index}", "kind": "CPU"} for index in (0, 1)],
    }


def test_all_mistakes_of_all_models_are_told_with_their_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_folders.identity(tmp_path, "good")
    first = write(tmp_path, "bad", 'backend: "identity"\nmax_batch_size: -1\ninput {\n  name: "x"\n  dims: 0\n}\n')
    second = write(tmp_path, "typo", 'backend: "identity"\n  max_batchsize: 3\ninput { nam: "x" }\n')
    assert run(["check", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"{first}:2:17: error: 'max_batch_size' must be non-negative value for bad, got -1 [max_batch_size]" in printed
    assert f"{first}:3:1: error: model input 'x' must specify 'data_type' for bad [input[0].data_type]" in printed
    assert f"{first}:3:1: error: model input 'x' has dims [0]: dimension must be integer >= 1" in printed
    assert f"{second}:2:3: error: unknown field 'max_batchsize' in ModelConfig; did you mean 'max_batch_size'?" in printed
    assert f"{second}:3:9: error: unknown field 'nam' in ModelInput; did you mean 'name'?" in printed
    assert "model good: ok" in printed
    assert printed.endswith("3 models checked, 2 can't be served, 5 errors\n")


def test_a_model_file_that_does_not_fit_its_config_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "sums", 'max_batch_size: 2 input { name: "a" data_type: TYPE_FP32 dims: 4 }')
    onnx_models.save(onnx_models.sum_and_difference(), tmp_path / "sums/1/model.onnx")
    code, report = checked(capsys, tmp_path)
    assert code == 1
    assert "not in the configuration: b" in report["models"][0]["errors"][0]["message"]


def test_without_auto_complete_a_model_without_config_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_models.save(onnx_models.sum_and_difference(), tmp_path / "sums/1/model.onnx")
    code, report = checked(capsys, "--disable-auto-complete-config", tmp_path)
    assert code == 1
    assert [error["message"] for error in report["models"][0]["errors"]] == [
        "model configuration is not provided for model 'sums'"
    ]


def test_a_field_without_effect_is_a_warning_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_folders.write_model(
        tmp_path, "warned", 'backend: "identity"\nmodel_operations { }\noptimization {\n  eager_batching: true }\n'
    )
    code, report = checked(capsys, tmp_path)
    found = [(each["line"], each["column"], each["message"]) for each in report["models"][0]["warnings"]]
    assert code == 0
    assert found == [
        (4, 19, "field 'optimization.eager_batching' has no effect in this build"),
        (2, 1, "field 'model_operations' has no effect in this build"),
    ]


def test_what_a_python_model_runs_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "was_run"
    path = tmp_path / "models/code/1/model.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"open({str(mark)!r}, 'w')\n")
    code, report = checked(capsys, tmp_path / "models")
    assert code == 0
    assert "auto_complete_config of model 'code' isn't run here" in report["models"][0]["warnings"][0]["message"]
    assert not mark.exists()


COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(3)
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        %s
        return config

    def execute(self, requests):
        return []
"""


def code_model(repository: Path, name: str, extra: str) -> None:
    path = repository / name / "1/model.py"
    path.parent.mkdir(parents=True)
    path.write_text(COMPLETING % extra)


def test_python_models_complete_their_configs_when_they_may_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code_model(tmp_path, "good", "config.add_output({'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [2]})")
    code_model(tmp_path, "raises", "raise ValueError('no such luck')")
    code_model(tmp_path, "zero", "config.add_output({'name': 'Y', 'data_type': 'TYPE_FP32', 'dims': [0]})")
    code, report = checked(capsys, "--run-models", tmp_path)
    good, raises, zero = report["models"]
    assert code == 1
    assert (good["ok"], good["warnings"]) == (True, [])
    assert good["plan"]["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}]
    assert "no such luck" in raises["errors"][0]["message"]
    assert zero["errors"][0]["field"] == "output[0].dims"


def test_a_python_model_without_its_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "code", 'backend: "python"')
    code, report = checked(capsys, tmp_path)
    assert code == 1
    assert "there is no file" in report["models"][0]["errors"][0]["message"]


def test_no_version_an_unknown_backend_and_a_wrong_name_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.pbtxt").write_text('name: "other"\nbackend: "abacus"\n')
    code, report = checked(capsys, tmp_path)
    messages = [(error["line"], error["message"]) for error in report["models"][0]["errors"]]
    assert code == 1
    assert messages[0] == (
        1,
        "unexpected directory name 'm' for model 'other', directory name must equal model name",
    )
    assert messages[1][1].startswith("at least one version must be available under the version policy of model 'other'")
    assert messages[2][0] == 2
    assert "abacus" in messages[2][1]


def test_equal_names_in_two_repositories_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        model_folders.identity(tmp_path / name, "m")
    code, report = checked(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert report["models"][0]["errors"][0]["message"].startswith("model appears in two or more repositories: ")


def test_a_repository_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_url_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "s3://bucket/models"]) == 1
    assert "bucket/models" in capsys.readouterr().err


def ensemble_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str) -> list[tuple[int, str]]:
    """The errors of the ensemble after one change."""
    for name in "ABC":
        model_folders.identity(tmp_path, name)
    assert old in ENSEMBLE
    write(tmp_path, "e", ENSEMBLE.replace(old, new, 1))
    code, report = checked(capsys, tmp_path)
    errors = next(model["errors"] for model in report["models"] if model["name"] == "e")
    assert code == bool(errors)
    return [(error["line"], error["message"]) for error in errors]


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ('"B" model_version: -1 input_map { key: "X" value: "feats"', '"B" input_map { key: "X" value: "feat"', 8, "'feats'?"),
        ('"C" model_version: -1 input_map { key: "X"', '"C" input_map { key: "x"', 9, "did you mean 'X'?"),
        ('output_map { key: "Y" value: "oc" }', 'output_map { key: "y" value: "oc" }', 9, "did you mean 'Y'?"),
        (
            "ensemble_scheduling {",
            'output { name: "final" data_type: TYPE_FP32 dims: -1 }\nensemble_scheduling {',
            6,
            "'final'",
        ),
        ("ensemble_scheduling {", 'input { name: "Z" data_type: TYPE_FP32 dims: -1 }\nensemble_scheduling {', 6, "input 'Z'"),
        ('value: "oc" }', 'value: "ob" }', 9, "it is written by step 2 (model 'B') already"),
        ('"ob" data_type: TYPE_FP32', '"ob" data_type: TYPE_INT32', 4, "TYPE_INT32 as the ensemble's output"),
        ("max_batch_size: 8", "max_batch_size: 16", 2, "takes batches of 8 at most, the ensemble 16"),
        ('model_name: "B"', 'model_name: "Bee"', 8, "not available or ambiguous: Bee (step 2)"),
        ('key: "X" value: "in"', 'key: "X" value: "oc"', 7, "wait for each other"),
        (
            '"A" model_version: -1',
            '"A"',
            7,
            "wants version 0 of the model, loaded are: 1; set model_version: -1 for the latest",
        ),
    ],
)
def test_a_mistake_in_an_ensemble_is_told_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, line: int, text: str
) -> None:
    errors = ensemble_errors(tmp_path, capsys, old, new)
    assert [line] == [at for at, message in errors if text in message][:1]


def test_a_right_ensemble_is_shown_with_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ensemble_errors(tmp_path, capsys, "platform", "platform") == []
    _, report = checked(capsys, tmp_path)
    plan = next(model["plan"] for model in report["models"] if model["name"] == "e")
    assert plan["steps"] == ["A: X=in -> Y=feats", "B: X=feats -> Y=ob", "C: X=feats -> Y=oc"]


def test_an_ensemble_of_a_model_that_is_wrong_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "AC":
        model_folders.identity(tmp_path, name)
    write(tmp_path, "B", 'backend: "identity" max_batch_size: -1')
    write(tmp_path, "e", ENSEMBLE)
    _, report = checked(capsys, tmp_path)
    messages = [error["message"] for model in report["models"] if model["name"] == "e" for error in model["errors"]]
    expected = (
        "ensemble 'e' depends on 'B' which has no loaded version. Model 'B' loading failed with error: "
        "'max_batch_size' must be non-negative value for B, got -1 (step 2)"
    )
    assert expected in messages


def test_with_namespaces_an_ensemble_means_the_models_of_its_own_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        for model in "ABC":
            model_folders.identity(tmp_path / name, model, datatype="FP32" if name == "one" else "INT64")
    for name in ("one", "two", "three"):
        write(tmp_path / name, f"ensemble_{name}", ENSEMBLE)
    code, report = checked(capsys, "--model-namespacing=true", *(tmp_path / name for name in ("one", "two", "three")))
    texts = {model["name"]: " ".join(error["message"] for error in model["errors"]) for model in report["models"]}
    assert code == 1
    assert ("INT64" in texts["ensemble_one"], "ambiguous" in texts["ensemble_one"]) == (False, False)
    assert "INT64" in texts["ensemble_two"]
    assert "the name is ambiguous" in texts["ensemble_three"]
    assert [model["name"] for model in report["models"]].count("A") == 2
