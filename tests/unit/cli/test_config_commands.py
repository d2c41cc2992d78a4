"""`naiad config show|init|explain`: what is derived is shown, reads back the same, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import model_folders
import onnx_models
import pytest

from naiad.cli.main import run
from naiad.config.json_form import to_json
from naiad.config.pbtxt import parse_config, read_config


def onnx(folder: Path) -> Path:
    onnx_models.save(onnx_models.identity("FP32", ["n"]), folder / "1/model.onnx")
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["config", "show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_what_is_shown_can_be_used_again_and_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = shown(capsys, onnx(tmp_path / "a/m"))
    copy = onnx(tmp_path / "b/m")
    (copy / "config.pbtxt").write_text(first)
    second = shown(capsys, "--disable-auto-complete-config", copy)
    assert to_json(parse_config(first, "f")) == to_json(parse_config(second, "f"))
    assert parse_config(first, "f").output[0].HasField("reshape")


def test_comments_say_what_is_derived_and_from_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, onnx(tmp_path / "m")).splitlines()
    assert "# max_batch_size 4: auto-complete from the model file" in lines
    assert "# version_policy.latest.num_versions 1: default" in lines
    assert '# backend "onnxruntime": name of the model file' in lines


def test_each_value_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = onnx(tmp_path / "m")
    (folder / "config.pbtxt").write_text('# head\ninput [ { name: "x" data_type: TYPE_FP32\n  dims: [ 1 ] reshape { } } ]\n')
    assert run(["config", "explain", str(folder), "--backend-config=default-max-batch-size=7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    where = folder / "config.pbtxt"
    for line in (
        'name: "m"    name of the folder',
        f'input[0].name: "x"    {where}:2:17',
        f"input[0].dims[0]: 1    {where}:3:11",
        "max_batch_size: 7    command line: --backend-config default-max-batch-size=7",
        'output[0].name: "y"    auto-complete from the model file',
        "dynamic_batching.preferred_batch_size[0]: 7    default",
    ):
        assert line in lines


def test_a_first_config_says_what_the_file_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = onnx(tmp_path / "m")
    assert run(["config", "init", str(folder)]) == 0
    config = read_config(folder / "config.pbtxt")
    assert (config.name, config.backend, config.max_batch_size) == ("m", "onnxruntime", 4)
    assert [tensor.name for tensor in (*config.input, *config.output)] == ["x", "y"]
    assert not config.instance_group
    capsys.readouterr()
    assert run(["check", "--disable-auto-complete-config", str(folder)]) == 0


def test_a_first_config_of_a_python_model_shows_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "m/1/model.py"
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert run(["config", "init", str(tmp_path / "m")]) == 0
    text = (tmp_path / "m/config.pbtxt").read_text()
    assert '# input [ { name: "INPUT"' in text
    sample = "\n".join(line[2:] for line in text.splitlines() if line.startswith("# ") and not line.endswith(":"))
    assert parse_config(sample, "f").input[0].name == "INPUT"


def test_a_config_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folders.identity(tmp_path, "m")
    before = (folder / "config.pbtxt").read_bytes()
    assert run(["config", "init", str(folder)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert before == (folder / "config.pbtxt").read_bytes()


def test_nothing_is_written_for_a_folder_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    assert run(["config", "init", str(tmp_path / "m")]) == 1
    assert "Could not determine backend for model 'm'" in capsys.readouterr().err
    assert not (tmp_path / "m/config.pbtxt").exists()


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_config_with_mistakes_exits_with_1_and_tells_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = model_folders.write_model(tmp_path, "m", 'backend: "identity"\nmax_batch_size: -1\n')
    assert run(["config", command, str(folder)]) == 1
    printed = capsys.readouterr()
    assert "config.pbtxt:2:17: error: 'max_batch_size' must be non-negative" in printed.err
    assert "max_batch_size" in printed.out


def test_a_repository_is_not_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        model_folders.identity(tmp_path, name)
    assert run(["config", "show", str(tmp_path)]) == 1
    assert "is not a model's folder" in capsys.readouterr().err
