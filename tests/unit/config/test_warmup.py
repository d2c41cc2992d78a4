"""What a model's warm-up samples hold, and what is said of wrong ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from naiad.config.compile.tensors import input_plans
from naiad.config.compile.warmup import MOST_BYTES, skipped_samples, warmup_samples
from naiad.config.pbtxt import parse_config
from naiad.errors import Code, InferenceServerError


def config(inputs: str, datatype: str = "FP32", dims: str = "2", max_batch_size: int = 8, more: str = "batch_size: 1"):
    return parse_config(
        f"""
        name: "m" max_batch_size: {max_batch_size}
        input [{{ name: "X" data_type: TYPE_{datatype} dims: [ {dims} ] }}]
        model_warmup [{{ name: "w" {more} {inputs} }}]
        """,
        "f",
    )


def samples(folder: Path, *arguments, **more):
    made = config(*arguments, **more)
    return warmup_samples(made, {plan.name: plan for plan in input_plans(made)}, folder)


def of(data: str, datatype: str = "FP32", dims: str = "2", name: str = "X") -> str:
    return f'inputs {{ key: "{name}" value {{ data_type: TYPE_{datatype} dims: [ {dims} ] {data} }} }}'


def from_file(tmp_path: Path, content: bytes, datatype: str = "FP32", dims: str = "2") -> np.ndarray:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "text").write_bytes(content)
    [sample] = samples(tmp_path, of('input_data_file: "text"', datatype, dims), datatype, dims)
    return sample.inputs["X"]


def refusal(*arguments, **more) -> str:
    with pytest.raises(InferenceServerError) as caught:
        samples(Path("/models/m"), *arguments, **more)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "'w'" in caught.value.message
    return caught.value.message


def prefixed(*texts: str) -> bytes:
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "FP32", "FP64", "INT8", "INT64", "UINT8", "UINT64"])
@pytest.mark.parametrize("choice", ["zero_data", "random_data"])
def test_zero_and_random_data_have_every_datatype(datatype, choice):
    [sample] = samples(Path(), of(f"{choice}: true", datatype, "3"), datatype, "3")
    array = sample.inputs["X"]
    assert array.shape == (1, 3)
    if choice == "zero_data":
        assert not array.any()
    elif datatype == "BF16":
        floats = (array.astype(np.uint32) << 16).view(np.float32)
        assert ((floats >= 0) & (floats <= 1)).all()
    else:
        assert ((array >= 0) & (array <= 100)).all()


@pytest.mark.parametrize("choice", ["zero_data", "random_data"])
def test_strings_are_empty(choice):
    [sample] = samples(Path(), of(f"{choice}: true", "STRING", "2"), "STRING", "2")
    assert sample.inputs["X"].tolist() == [[b"", b""]]


def test_a_model_that_does_not_batch_gets_the_dims_themselves():
    [sample] = samples(Path(), of("zero_data: true"), max_batch_size=0)
    assert (sample.inputs["X"].shape, sample.batch_size, sample.count) == ((2,), 1, 1)


def test_batch_size_and_count_are_kept_and_a_batch_size_of_0_leaves_the_sample_out():
    [sample] = samples(Path(), of("zero_data: true"), more="batch_size: 8 count: 3")
    assert (sample.batch_size, sample.count) == (8, 3)
    assert samples(Path(), of("zero_data: true"), more="batch_size: 0") == ()
    assert list(skipped_samples(config(of("zero_data: true"), more="batch_size: 0"))) == ["w"]


def test_a_file_holds_one_item_and_what_is_beyond_it_is_left_alone(tmp_path):
    array = from_file(tmp_path, struct.pack("<3f", 1, 2, 3))
    assert array.tolist() == [[1, 2]]


def test_strings_of_a_file_stand_behind_their_lengths(tmp_path):
    assert from_file(tmp_path, prefixed("it\u2019s"), "STRING", "1").tolist() == [["it\u2019s".encode()]]


@pytest.mark.parametrize(
    "content",
    ["it\u2019s".encode(), b"", prefixed("a", "b"), struct.pack("<I", 99) + b"abc"],
    ids=["bare", "empty", "two", "long"],
)
def test_a_file_of_strings_that_is_wrong_is_told_the_form_and_how_it_begins(tmp_path, content):
    with pytest.raises(InferenceServerError) as caught:
        from_file(tmp_path, content, "STRING", "1")
    text = caught.value.message
    assert "must hold 1 strings, each behind its length as 4 bytes, little-endian" in text
    assert f"it has {len(content)} bytes and begins with {content[:16]!r}" in text
    assert "sample 'w' of model 'm', input 'X'" in text
    assert str(tmp_path / "warmup" / "text") in text


def test_a_file_that_is_too_short_is_told_how_long_it_must_be(tmp_path):
    with pytest.raises(InferenceServerError, match=r"text has 4 bytes, must have 8: 2 elements of FP32"):
        from_file(tmp_path, b"1234")


@pytest.mark.parametrize(
    ("inputs", "more", "text"),
    [
        (of('input_data_file: "none"'), {}, "/models/m/warmup/none can't be read: No such file"),
        (of('input_data_file: "../../secret"'), {}, "'../../secret' must be a path inside /models/m/warmup"),
        (of('input_data_file: "/etc/passwd"'), {}, "'/etc/passwd' must be a path inside"),
        (of('input_data_file: ""'), {}, "'' must be a path inside"),
        (of(""), {}, "must have one of zero_data, random_data and input_data_file"),
        (of("zero_data: true", dims="-1"), {"dims": "-1"}, "has dims [-1], must be fixed sizes"),
        (of("zero_data: true", dims="3"), {}, "has dims [3], must be fixed sizes of one item that fit the model's [2]"),
        (of("zero_data: true", "INT8"), {}, "has data_type TYPE_INT8, the model's is TYPE_FP32"),
        (of("zero_data: true", name="Z"), {}, "names input 'Z', which isn't there; the inputs are: X"),
        ("", {}, "has no data for input 'X'"),
        (of("zero_data: true"), {"more": "batch_size: 9"}, "has batch_size 9, must be from 1 to 8"),
        (of("zero_data: true"), {"more": "batch_size: 2", "max_batch_size": 0}, "has batch_size 2, must be from 1 to 1"),
        (of("zero_data: true", dims="99999999999"), {"dims": "-1"}, f"take more than {MOST_BYTES} bytes"),
    ],
)
def test_what_is_wrong_with_a_sample_is_named(inputs, more, text):
    assert text in refusal(inputs, **more)
