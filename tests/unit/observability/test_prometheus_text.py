"""The text format: escapes, order of labels, values, checked by another implementation's parser."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from naiad.observability.prometheus_text import (
    Family,
    Kind,
    Sample,
    encode,
    family_lines,
    header,
    label_block,
    label_name,
    sample_line,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))


def parse(text: str) -> list:
    return list(text_string_to_metric_families(text))


def test_labels_are_written_in_alphabetical_order_with_an_underscore_first() -> None:
    assert label_block({"version": "1", "model": "m", "_team": "x"}) == '{_team="x",model="m",version="1"}'


def test_a_metric_without_labels_has_no_braces() -> None:
    assert sample_line("nv_cpu_utilization", label_block({}), 0.25) == "nv_cpu_utilization 0.25\n"


def test_backslash_quote_and_newline_are_escaped_in_label_values() -> None:
    assert label_block({"a": 'x\\y"z\n'}) == '{a="x\\\\y\\"z\\n"}'


def test_backslash_and_newline_but_no_quote_are_escaped_in_help() -> None:
    assert header("m", Kind.GAUGE, 'a\\b\n"c"') == '# HELP m a\\\\b\\n"c"\n# TYPE m gauge\n'


@given(TEXT)
def test_a_parser_reads_back_any_label_value(value: str) -> None:
    family = Family("naiad_x", Kind.GAUGE, "help", [Sample(1, {"a": value})])
    [parsed] = parse("".join(family_lines(family)))
    assert parsed.samples[0].labels == {"a": value}


@given(st.one_of(st.integers(0, 2**63), st.floats()))
def test_a_parser_reads_back_any_number(value: float) -> None:
    [parsed] = parse("".join(family_lines(Family("naiad_x", Kind.GAUGE, "help", [Sample(value, {})]))))
    got = parsed.samples[0].value
    assert got == value or (math.isnan(got) and math.isnan(value)) or got == float(value)


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (2**63, "9223372036854775808"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")]
)
def test_values_have_the_spelling_of_the_format(value: float, text: str) -> None:
    assert sample_line("m", "", value) == f"m {text}\n"


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "a\n"])
def test_a_name_that_the_format_has_not_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(ValueError, match="metric name is"):
        Family(name, Kind.GAUGE, "", [])
    with pytest.raises(ValueError, match="label name is"):
        Sample(1, {name: "x"})


def test_characters_that_no_label_name_has_become_underscores() -> None:
    assert label_name("my-tag.é/1") == "my_tag___1"


def test_text_that_is_not_valid_unicode_becomes_question_marks() -> None:
    assert encode("m\udcff") == b"m?"
