"""Who makes room: idle ones, least recently used first, and no more than needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.repository.budget.policy import Evictions, Resident, choose

A, B, C = (
    Resident("a", size_bytes=100, last_used_ms=3, is_idle=True),
    Resident("b", size_bytes=50, last_used_ms=1, is_idle=True),
    Resident("c", size_bytes=70, last_used_ms=2, is_idle=False),
)


@pytest.mark.parametrize(
    ("excess_bytes", "expected"),
    [
        (-10, Evictions((), 0)),
        (0, Evictions((), 0)),
        (1, Evictions(("b",), 0)),
        (50, Evictions(("b",), 0)),
        (51, Evictions(("b", "a"), 0)),
        (150, Evictions(("b", "a"), 0)),
        (151, Evictions(("b", "a"), 1)),
    ],
)
def test_the_least_recently_used_idle_ones_go_until_it_is_enough(excess_bytes, expected):
    assert choose(excess_bytes, [A, B, C]) == expected


def test_of_those_used_at_the_same_time_the_first_goes_first():
    same = [Resident(name, 10, 5, is_idle=True) for name in "xyz"]
    assert choose(15, same).keys == ("x", "y")


def test_what_takes_nothing_stays():
    assert choose(5, [Resident("none", 0, 0, is_idle=True), A]).keys == ("a",)


RESIDENTS = st.lists(
    st.builds(Resident, st.integers(), st.integers(0, 100), st.integers(0, 9), st.booleans()),
    unique_by=lambda resident: resident.key,
)


@given(st.integers(-50, 500), RESIDENTS)
def test_only_idle_ones_go_all_of_them_needed_and_what_is_missing_is_told(excess_bytes, residents):
    by_key = {resident.key: resident for resident in residents}
    chosen = choose(excess_bytes, residents)
    going = [by_key[key] for key in chosen.keys]
    assert all(resident.is_idle for resident in going)
    freed = [resident.size_bytes for resident in going]
    assert chosen.missing_bytes == max(excess_bytes - sum(freed), 0)
    assert not freed or sum(freed[:-1]) < excess_bytes
    if chosen.missing_bytes:
        assert sum(freed) == sum(resident.size_bytes for resident in residents if resident.is_idle)
