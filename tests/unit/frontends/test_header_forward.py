"""Rules of request headers that become parameters."""

from __future__ import annotations

import subprocess
import sys

import pytest

from naiad.errors import Code, InferenceServerError
from naiad.frontends.header_forward import HeaderForwarder


def test_without_a_pattern_nothing_is_forwarded_and_re2_is_not_imported():
    script = (
        "import sys; from naiad.frontends.header_forward import HeaderForwarder as F; "
        "assert F('').parameters([(b'a', b'b')]) == {}; assert 're2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_part_of_the_name_is_enough():
    headers = [(b"x-tenant-id", b"a"), (b"tenant", b"b"), (b"host", b"h")]
    assert HeaderForwarder("tenant").parameters(headers) == {"x-tenant-id": "a", "tenant": "b"}


def test_an_anchored_pattern_matches_the_whole_name():
    assert HeaderForwarder("^tenant$").parameters([(b"x-tenant-id", b"a"), (b"tenant", b"b")]) == {"tenant": "b"}


def test_case_does_not_count_unless_the_pattern_says_so():
    headers = [(b"My-Header", b"1"), (b"my-header", b"2")]
    assert HeaderForwarder("^MY-").parameters(headers) == {"My-Header": "1", "my-header": "2"}
    assert HeaderForwarder("(?-i)^My-").parameters(headers) == {"My-Header": "1"}


def test_an_empty_value_stays_empty():
    assert HeaderForwarder("a").parameters([(b"a", b"")]) == {"a": ""}


def test_values_of_a_repeated_header_are_joined():
    assert HeaderForwarder("a").parameters([(b"a", b"1"), (b"b", b"x"), (b"a", b"2")]) == {"a": "1, 2"}


def test_a_value_is_utf8_or_else_latin1():
    assert HeaderForwarder("a").parameters([(b"a1", "ü".encode()), (b"a2", b"\xfc")]) == {"a1": "ü", "a2": "ü"}


@pytest.mark.parametrize("name", ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers"])
def test_a_name_with_a_meaning_of_its_own_is_refused(name):
    _check_refused(name)


@pytest.mark.parametrize("name", ["binary_data_output", "triton_", "Triton_x", "PRIORITY"])
def test_reserved_names_are_refused_in_any_case(name):
    _check_refused(name)


def test_a_reserved_name_that_does_not_match_is_left_alone():
    assert HeaderForwarder("^x-").parameters([(b"priority", b"1"), (b"x-a", b"2")]) == {"x-a": "2"}


def test_a_name_is_refused_each_time():
    forwarder = HeaderForwarder(".*")
    for _ in range(2):
        with pytest.raises(InferenceServerError):
            forwarder.parameters([(b"timeout", b"1")])


def test_a_bad_pattern_is_an_error_at_the_start_that_names_flag_and_pattern():
    with pytest.raises(InferenceServerError) as caught:
        HeaderForwarder("x(")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message.startswith("--http-header-forward-pattern 'x(' is not an RE2 expression: missing )")


def test_what_python_knows_and_re2_does_not_is_refused():
    with pytest.raises(InferenceServerError, match="RE2"):
        HeaderForwarder("(?=lookahead)")


def _check_refused(name: str) -> None:
    with pytest.raises(InferenceServerError) as caught:
        HeaderForwarder(".*").parameters([(name.encode(), b"1")])
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
