"""Models share kept answers when their folders and configurations are equal, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format

from naiad.config.compile.shared_answers import answers_digest
from naiad.errors import Code, InferenceServerError
from naiad.proto import message_class

PARAMETER = 'parameters { key: "naiad_cache_shared" value { string_value: "true" } }'
WISH = f"{PARAMETER} response_cache {{ enable: true }}"


def made(folder: Path, file: str = "1/model.onnx", content: bytes = b"weights") -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return folder


def digest(folder: Path, text: str = "", wish: str = WISH, version: str = "1") -> bytes:
    config = text_format.Parse(f'name: "m" backend: "onnxruntime" {text} {wish}', message_class("inference.ModelConfig")())
    parameters = {name: parameter.string_value for name, parameter in config.parameters.items()}
    return answers_digest(config, parameters, folder, folder / version)


def test_who_does_not_ask_for_it_shares_nothing_and_reads_no_file(tmp_path):
    assert digest(tmp_path / "none", wish="response_cache { enable: true }") == b""
    assert digest(tmp_path / "none", wish=WISH.replace("true", "false", 1)) == b""


def test_equal_models_share_wherever_and_however_they_run(tmp_path):
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    made(b, "config.pbtxt", b"# a comment")
    made(b, "2/model.onnx", b"another version")
    made(b, "1/__pycache__/model.pyc", b"\0")
    os.utime(b / "1" / "model.onnx", ns=(1, 1))
    kind = "instance_group { kind: KIND_CPU count: %d }"
    first = digest(a, kind % 1)
    assert len(first) == 32
    assert first == digest(b, kind % 4 + ' dynamic_batching { } metric_tags { key: "a" value: "b" }')


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: made(folder, content=b"weightS"),
    "length": lambda folder: made(folder, content=b"weights "),
    "name": lambda folder: (folder / "1" / "model.onnx").rename(folder / "1" / "other.onnx"),
    "another file": lambda folder: made(folder, "1/vocabulary/words", b"a"),
    "a file of the model": lambda folder: made(folder, "labels.txt", b""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_other_file_is_another_model(tmp_path, change):
    before = digest(made(tmp_path))
    CHANGES[change](tmp_path)
    assert digest(tmp_path) != before


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: 4",
        "instance_group { kind: KIND_GPU }",
        'parameters { key: "a" value { string_value: "b" } }',
        'input { name: "X" data_type: TYPE_FP32 dims: 1 }',
    ],
)
def test_another_configuration_is_another_model(tmp_path, text):
    made(tmp_path)
    assert digest(tmp_path, text) != digest(tmp_path, "instance_group { kind: KIND_CPU }")


def test_what_lies_in_the_version_is_not_taken_for_what_lies_beside_it(tmp_path):
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    made(a, "1/words")
    made(b, "words")
    assert digest(a) != digest(b)


REFUSED = {
    "wrong value": (lambda folder: None, {"wish": WISH.replace('"true"', '"yes"')}, "is 'yes', must be true or false"),
    "no cache": (lambda folder: None, {"wish": PARAMETER}, "needs response_cache { enable: true }"),
    "ensemble": (lambda folder: None, {"text": "ensemble_scheduling { }"}, "an ensemble's answers depend on other models"),
    "link to a folder": (lambda folder: (folder / "1" / "far").symlink_to(folder), {}, "/1/far is a link to a folder"),
    "fifo": (lambda folder: os.mkfifo(folder / "1" / "pipe"), {}, "/1/pipe isn't a file"),
    "dead link": (lambda folder: (folder / "1" / "gone").symlink_to("none"), {}, "/1/gone can't be read: No such file"),
    "no folder": (lambda folder: None, {"version": "7"}, "/7 can't be read: No such file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_can_not_be_shared_is_refused_by_name(tmp_path, what):
    change, more, text = REFUSED[what]
    change(made(tmp_path))
    with pytest.raises(InferenceServerError) as caught:
        digest(tmp_path, **more)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "model 'm': parameter 'naiad_cache_shared' " in caught.value.message
    assert text in caught.value.message
