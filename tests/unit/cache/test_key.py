"""Requests have one key exactly when they have to be answered alike."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.cache.key import hashed_bytes, request_key
from naiad.request.request import InferRequest, Sequence


def strings(*elements: bytes) -> np.ndarray:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def request(inputs=None, outputs=("Y",), **more) -> InferRequest:
    made = InferRequest(inputs or {"X": np.zeros(2, np.float32)}, outputs, 1, SimpleNamespace(), 0)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def of(array: np.ndarray) -> InferRequest:
    return request({"X": array})


DIFFERENT = [
    of(np.arange(6, dtype=np.float32).reshape(2, 3)),
    of(np.arange(6, dtype=np.float32).reshape(3, 2)),
    of(np.arange(6, dtype=np.float32)),
    of(np.zeros((0, 3), np.float32)),
    of(np.zeros((3, 0), np.float32)),
    of(strings(b"ab", b"c")),
    of(strings(b"a", b"bc")),
    of(strings(b"abc")),
    of(strings(b"", b"abc")),
    of(strings(b"abc", b"")),
    request({"X": np.zeros(1, np.int8), "Z": np.ones(1, np.int8)}),
    request({"X": np.ones(1, np.int8), "Z": np.zeros(1, np.int8)}),
    request({"Z": np.zeros(2, np.float32)}),
    request(),
    request(outputs=("Y", "Z")),
    request(outputs=("Z", "Y")),
    request(outputs=("Y', 'Z",)),
    *(request(parameters={"p": value}) for value in (1, "1", 1.0, True, "True", "")),
    request(parameters={"q": 1}),
    request(parameters={"p": 1, "q": 1}),
    request(parameters={"p": "1, 'q': 1"}),
]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(DIFFERENT, 2)))
def test_whatever_an_answer_depends_on_makes_another_key(one, other):
    assert request_key(one) != request_key(other)


@pytest.mark.parametrize(
    "more", [{"id": "7"}, {"priority": 3}, {"timeout_us": 9}, {"received_ns": 5}, {"sequence": Sequence(1, True, False)}]
)
def test_what_an_answer_does_not_depend_on_changes_nothing(more):
    assert request_key(request(**more)) == request_key(request())


def test_the_order_of_inputs_and_parameters_and_the_layout_in_memory_change_nothing():
    x, z = np.arange(6, dtype=np.int16).reshape(2, 3), np.ones(1, np.int8)
    one = request({"X": x, "Z": z}, parameters={"a": 1, "b": 2})
    other = request({"Z": z, "X": np.asfortranarray(x)}, parameters={"b": 2, "a": 1})
    assert request_key(one) == request_key(other)


def test_a_name_that_is_no_valid_text_has_a_key():
    assert request_key(request(parameters={"p": "\ud800"})) != request_key(request(parameters={"p": "\ud801"}))


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_two_lists_of_strings_have_one_key_only_when_they_are_equal(one, other):
    assert (request_key(of(strings(*one))) == request_key(of(strings(*other)))) == (one == other)


def test_many_strings_count_as_much_work_whatever_they_hold():
    assert hashed_bytes(of(strings(*[b""] * 100_000))) > 1 << 20
    assert hashed_bytes(of(np.zeros(10, np.float32))) == 40
