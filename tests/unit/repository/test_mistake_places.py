"""A load that fails says where in the config's file each mistake stands, behind the text that Triton's clients know."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnx_models
import pytest
from model_folders import identity, write_model

from naiad.backends.table import BackendTable
from naiad.config.pbtxt import parse_config
from naiad.errors import Code, InferenceServerError
from naiad.repository.control.places import Places
from naiad.repository.layout import Naming
from naiad.repository.loader import Loader, LoadSettings, PreparationError

GOOD = """backend: "identity"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""


def failed(repository: Path, config: object = None, naming: Naming | None = None) -> InferenceServerError:
    """Load the model m, which must fail."""
    loader = Loader(BackendTable(others=()), LoadSettings(True, {}), SimpleNamespace())
    source = Places([repository], (), naming=naming or Naming()).find("m", config)
    with pytest.raises(InferenceServerError) as caught:
        loader.close(loader.load(loader.prepare(source), 1).instances)
    return caught.value


@pytest.mark.parametrize(
    ("changed", "text", "place"),
    [
        (("max_batch_size: 8", "max_batch_size: -1"), "'max_batch_size' must be non-negative value for m", "2:17"),
        (("dims: [ 1 ] }]\noutput", "dims: [ 0 ] }]\noutput"), "model input 'X' has dims [0]", "3:8"),
        (('"identity"', '"none"'), "unable to find backend library for backend 'none'", "1:10"),
        (("backend", 'name: "other"\nbackend'), "unexpected directory name 'm' for model 'other'", "1:7"),
        (("max", "version_policy { specific { versions: 7 } }\nmax"), "at least one version must be available", "2:1"),
        (('name: "Y"', 'name: "Y" label_filename: "none.txt"'), "label_filename 'none.txt' of output 'Y'", "4:37"),
        (("max", 'model_repository_agents { agents { name: "no" } }\nmax'), "model 'm': repository agent 'no'", "2:1"),
    ],
)
def test_the_place_is_in_a_line_behind_the_text(tmp_path, changed, text, place):
    file = write_model(tmp_path, "m", GOOD.replace(*changed, 1)) / "config.pbtxt"
    first, second = failed(tmp_path).message.split("\n")
    assert first.startswith(text)
    assert second == f"  at {file}:{place}"


def test_each_of_several_mistakes_has_its_place(tmp_path):
    text = GOOD.replace("max_batch_size: 8", "max_batch_size: -1").replace("dims: [ 1 ] }]\noutput", "dims: [ 0 ] }]\noutput")
    file = write_model(tmp_path, "m", text) / "config.pbtxt"
    error = failed(tmp_path)
    assert isinstance(error, PreparationError)
    # The name, the backend and the batch size are checked before a backend completes the tensors.
    assert error.message.endswith(f"\n  at {file}:2:17")
    file.write_text(GOOD.replace("dims: [ 1 ]", "dims: [ 0 ]"))
    lines = failed(tmp_path).message.split("\n")
    assert lines[0] == "2 mistakes:"
    assert [lines[2], lines[4]] == [f"  at {file}:3:8", f"  at {file}:4:9"]


def test_the_code_stays(tmp_path):
    write_model(tmp_path, "m", GOOD.replace('"identity"', '"none" runtime: "libtriton_none.so"'))
    assert failed(tmp_path).code is Code.UNIMPLEMENTED


def test_what_differs_from_the_models_file_has_its_place(tmp_path):
    onnx_models.save(onnx_models.sum_and_difference(), tmp_path / "m/1/model.onnx")
    text = 'input { name: "a" data_type: TYPE_FP32 dims: 4 }\ninput { name: "b" data_type: TYPE_INT64 dims: 4 }\n'
    outputs = "".join(f'output {{ name: "{name}" data_type: TYPE_FP32 dims: 4 }}\n' for name in ("sum", "difference"))
    file = write_model(tmp_path, "m", f"max_batch_size: 4\n{text}{outputs}") / "config.pbtxt"
    said = "tensor 'b': the model expects data type TYPE_FP32 but the model configuration specifies TYPE_INT64"
    assert failed(tmp_path).message == f"model 'm', {said}\n  at {file}:3:1"


def test_a_syntax_error_names_its_place_once(tmp_path):
    file = write_model(tmp_path, "m", 'backend: "identity"\ncolour: "red"') / "config.pbtxt"
    message = failed(tmp_path).message
    assert message.startswith(f"{file}:2:1: ")
    assert message.count(str(file)) == 1


def test_the_named_config_is_the_one_that_is_named(tmp_path):
    folder = identity(tmp_path, "m")
    (folder / "configs").mkdir()
    (folder / "configs/x.pbtxt").write_text("max_batch_size: -1\n" + GOOD.replace("max_batch_size: 8", ""))
    assert failed(tmp_path, naming=Naming("x")).message.endswith(f"\n  at {folder}/configs/x.pbtxt:1:17")


def test_a_config_that_a_client_sent_stands_in_no_file(tmp_path):
    write_model(tmp_path, "m", GOOD)
    assert "\n" not in failed(tmp_path, parse_config(GOOD.replace("8", "-1"), "sent")).message
