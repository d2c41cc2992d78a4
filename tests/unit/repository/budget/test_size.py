"""What a version needs, before it is loaded: what its config says, else the size of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.config.pbtxt import parse_config
from naiad.errors import Code, InferenceServerError
from naiad.repository.budget.size import Need, need_of, text_of
from naiad.repository.layout import ModelSource
from naiad.repository.loader import PreparedModel


def prepared(source: ModelSource, declared: str = "") -> PreparedModel:
    more = f'parameters {{ key: "memory_bytes" value {{ string_value: "{declared}" }} }}' if declared else ""
    return PreparedModel(source, parse_config(f'name: "m" {more}', "config.pbtxt"), object, {}, (1,))


def write(path: Path, size_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size_bytes))


def test_the_files_of_the_version_count_with_those_in_folders_and_no_others(tmp_path):
    write(tmp_path / "m" / "1" / "model.onnx", 100)
    write(tmp_path / "m" / "1" / "model.onnx.data" / "part", 30)
    write(tmp_path / "m" / "2" / "model.onnx", 1000)
    source = ModelSource("m", tmp_path / "m", None, {1: tmp_path / "m" / "1", 2: tmp_path / "m" / "2"})
    assert need_of(prepared(source), 1) == Need(None, 130)


def test_of_a_single_file_only_that_file_counts(tmp_path):
    write(tmp_path / "m.onnx", 100)
    write(tmp_path / "other.onnx", 1000)
    assert need_of(prepared(ModelSource("m", tmp_path, None, {1: tmp_path}, "m.onnx")), 1) == Need(None, 100)


def test_a_function_has_no_files_of_its_own(tmp_path):
    write(tmp_path / "program.py", 1000)
    assert need_of(prepared(ModelSource("m", tmp_path, None, {1: tmp_path})), 1) == Need(None, 0)


def test_a_dead_link_takes_nothing(tmp_path):
    write(tmp_path / "m" / "1" / "model.onnx", 100)
    (tmp_path / "m" / "1" / "gone").symlink_to(tmp_path / "nowhere")
    assert need_of(prepared(ModelSource("m", tmp_path / "m", None, {1: tmp_path / "m" / "1"})), 1) == Need(None, 100)


def test_the_config_may_say_it(tmp_path):
    assert need_of(prepared(ModelSource("m", tmp_path, None, {1: tmp_path}), "1.5GiB"), 1) == Need(3 << 29, 0)


@pytest.mark.parametrize("text", ["0", "much", "-5", "5PB"])
def test_what_it_says_must_be_a_number_of_bytes(tmp_path, text):
    with pytest.raises(InferenceServerError, match=f"model 'm': parameter 'memory_bytes' is '{text}', must be") as caught:
        need_of(prepared(ModelSource("m", tmp_path, None, {1: tmp_path}), text), 1)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (7, "7 bytes"),
        (2048, "2.0 KiB (2048 bytes)"),
        (1_500_000, "1.4 MiB (1500000 bytes)"),
        (3 << 29, "1.5 GiB (1610612736 bytes)"),
    ],
)
def test_sizes_are_told_for_people_and_exactly(size_bytes, text):
    assert text_of(size_bytes) == text
