"""How one value of a flag is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.options.kinds import Bool, Bytes, Choice, Float, Int, LocalPath, RepositoryPlace, Text


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("ON", True), ("1", True), ("False", False), ("off", False), ("0", False)]
)
def test_a_bool_is_true_on_1_or_false_off_0_in_any_case(text: str, value: bool) -> None:
    assert value is Bool().parse(text)


@pytest.mark.parametrize("text", ["", "yes", "2", " true", "none"])
def test_a_bool_takes_no_other_word(text: str) -> None:
    with pytest.raises(ValueError):
        Bool().parse(text)


@given(st.integers(-(10**18), 10**18))
def test_a_whole_number_is_read_as_it_is_written(number: int) -> None:
    assert number == Int().parse(str(number))


@pytest.mark.parametrize("text", ["", "1.0", "1e3", "0x10", "1_000", " 1", "٣", "9" * 20])
def test_a_whole_number_is_decimal_digits_only(text: str) -> None:
    with pytest.raises(ValueError):
        Int().parse(text)


@pytest.mark.parametrize(("text", "is_in_range"), [("0", False), ("1", True), ("5", True), ("6", False), ("-1", False)])
def test_both_ends_of_a_range_belong_to_it(text: str, is_in_range: bool) -> None:
    kind = Int(1, 5)
    if is_in_range:
        assert int(text) == kind.parse(text)
    else:
        with pytest.raises(ValueError):
            kind.parse(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7B", 7),
        ("2k", 2000),
        ("2KB", 2000),
        ("2KiB", 2048),
        ("1.5G", 1_500_000_000),
        ("1.5gi", 3 << 29),
        ("3 MiB", 3 << 20),
        ("0.1M", 100_000),
        ("2T", 2 * 10**12),
    ],
)
def test_bytes_have_units_of_1000_or_with_an_i_of_1024_in_any_case(text: str, size_bytes: int) -> None:
    assert size_bytes == Bytes().parse(text)


@pytest.mark.parametrize(
    "text", ["", "G", "-1", "+1", "1e9", "1,5G", "5PB", "1 2", "1iB", ".5G", "٣M", "9" * 19, "9999999999T"]
)
def test_bytes_are_a_number_of_digits_with_a_known_unit(text: str) -> None:
    with pytest.raises(ValueError):
        Bytes().parse(text)


@pytest.mark.parametrize("text", ["nan", "inf", "0.01", "-3", "ten"])
def test_a_number_is_finite_and_not_below_its_minimum(text: str) -> None:
    with pytest.raises(ValueError):
        Float(0.1).parse(text)


def test_a_choice_is_read_in_any_case_and_given_as_it_is_documented() -> None:
    assert Choice(("default", "ISO8601")).parse("iso8601") == "ISO8601"
    with pytest.raises(ValueError):
        Choice(("default", "ISO8601")).parse("iso")


def test_a_path_is_one_of_this_machine() -> None:
    assert Path("models/a.onnx") == LocalPath().parse("models/a.onnx")
    for text in ("", "s3://bucket/models", "gs://bucket/models", "as://account/container/models"):
        with pytest.raises(ValueError):
            LocalPath().parse(text)


def test_a_repository_is_a_path_or_a_url() -> None:
    assert Path("models") == RepositoryPlace().parse("models")
    assert RepositoryPlace().parse("s3://bucket/models") == "s3://bucket/models"
    for text in ("", "://bucket"):
        with pytest.raises(ValueError):
            RepositoryPlace().parse(text)


def test_an_empty_text_is_refused_where_it_would_mean_something_else() -> None:
    assert Text().parse("") == ""
    with pytest.raises(ValueError):
        Text(is_empty_allowed=False).parse("")
