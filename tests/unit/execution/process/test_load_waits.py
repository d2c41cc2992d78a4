"""Models that ask for loads of each other while they are being loaded: what would never end is refused."""

from __future__ import annotations

import pytest

from naiad.errors import InferenceServerError
from naiad.execution.process.load_waits import LoadWaits


def test_a_circle_of_any_length_is_refused_with_its_way_and_its_parts_are_not():
    waits = LoadWaits()
    with waits.waiting("a", "b"), waits.waiting("b", "c"), waits.waiting("a", "d"):
        with pytest.raises(InferenceServerError, match=r"'c' can't load or unload 'a' .* \(a → b → c\), so neither"):
            waits.waiting("c", "a").__enter__()
        with waits.waiting("c", "d"), waits.waiting("e", "a"):
            pass


def test_a_model_can_not_wait_for_itself():
    with pytest.raises(InferenceServerError, match="'a' can't load or unload itself while it is being loaded"):
        LoadWaits().waiting("a", "a").__enter__()


def test_what_has_ended_is_waited_for_no_more():
    waits = LoadWaits()
    with pytest.raises(ZeroDivisionError), waits.waiting("a", "b"):
        raise ZeroDivisionError
    with waits.waiting("b", "a"):
        pass


def test_each_model_that_begins_to_wait_is_told():
    waits, told = LoadWaits(), []
    waits.on_wait = told.append
    with waits.waiting("a", "b"), waits.waiting("b", "c"):
        assert told == ["a", "b"]
