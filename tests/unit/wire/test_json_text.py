"""JSON text: the literals that JSON lacks, and errors that tell where they are."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.wire.json_text import describe, parse, parse_object

# Since Python 3.13 the standard library points at a comma with nothing after it, before that at what comes next.
NAMES_THE_COMMA = sys.version_info >= (3, 13)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_every_value_is_read_as_it_was_written_with_and_without_a_bom(value: Any) -> None:
    text = json.dumps(value).encode()
    assert parse(text) == value
    assert parse(b"\xef\xbb\xbf" + text) == value


@given(VALUES)
def test_slow_reader_agrees_with_the_fast_one(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    assert parse(b"[Inf," + text + b"]") == [math.inf, parse(text)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"[NaN]", ["nan"]),
        (b"[Infinity,-Infinity]", ["inf", "-inf"]),
        (b"[Inf, -Inf]", ["inf", "-inf"]),
        (b'["Inf", "a\\"Inf", NaN]', ["Inf", 'a"Inf', "nan"]),
    ],
)
def test_literals_of_non_finite_floats_are_accepted(text: bytes, values: list[str]) -> None:
    assert [str(value) for value in parse(text)] == values


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b"", 0),
        (b"{", 1),
        (b'{"a":}', 5),
        (b'{"a":1}\x00', 7),
        (b'{"\xc3\xa9":}', 6),
        (b'{"a":"\xff"}', 6),
        (b'[Inf,-Inf,"Inf",]', 16 - NAMES_THE_COMMA),
        (b"[Inf,x,Inf]", 5),
        (b'[Inf,"\\"Inf', 5),
        (b'["Inf\\\\",Inf,}', 13),
        (b"\xef\xbb\xbf[x]", 4),
        (b'["\\ud800"]', 2),
        (b'[NaN,"\\ud83d\\ude00\\\\ud800\\udc00"]', 25),
        (b"[1,]", 3 - NAMES_THE_COMMA),
    ],
)
def test_syntax_error_tells_the_byte_offset(text: bytes, offset: int) -> None:
    with pytest.raises(InferenceServerError) as caught:
        parse(text)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message.startswith("failed to parse the request JSON buffer: ")
    assert caught.value.message.endswith(f" at {offset}")


@pytest.mark.parametrize(
    "text", [b"[1e400]", b"[-1e999,NaN]", b"[NaN," + b"9" * 5000 + b"]", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_what_no_value_can_hold_is_refused(text: bytes) -> None:
    with pytest.raises(InferenceServerError, match="failed to parse the request JSON buffer") as caught:
        parse(text)
    assert len(caught.value.message) < 300


def test_last_of_two_equal_keys_counts_for_both_readers() -> None:
    assert parse(b'{"a":1,"a":2}') == {"a": 2}
    assert parse(b'{"a":NaN,"a":2}') == {"a": 2}


@given(st.binary(max_size=40))
def test_any_bytes_give_a_value_or_the_one_error(text: bytes) -> None:
    code = Code.INVALID_ARGUMENT
    try:
        parse(text)
    except InferenceServerError as error:
        code = error.code
    assert code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("text", [b"[]", b"1", b'"a"', b"null", b"true"])
def test_request_must_be_an_object(text: bytes) -> None:
    with pytest.raises(InferenceServerError, match="must be a JSON object"):
        parse_object(text)


@given(VALUES)
def test_description_of_a_value_is_short(value: Any) -> None:
    assert len(describe(value)) < 1200
