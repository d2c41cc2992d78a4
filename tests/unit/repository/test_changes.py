"""What two looks at the repositories say is to be done."""

from __future__ import annotations

import pytest

from naiad.repository.control.changes import Changes, changes
from naiad.repository.tree import TreeState

A, B = TreeState("a", "a"), TreeState("b", "b")


@pytest.mark.parametrize(
    ("before", "now", "tried", "expected"),
    [
        pytest.param({"m": A}, {"m": A}, {"m": A}, Changes((), ()), id="nothing has changed"),
        pytest.param({}, {"m": A}, {}, Changes((), ()), id="new, and maybe not whole yet"),
        pytest.param({"m": A}, {"m": A}, {}, Changes(("m",), ()), id="new and settled"),
        pytest.param({"m": A}, {"m": B}, {"m": A}, Changes((), ()), id="changed, and maybe not whole yet"),
        pytest.param({"m": B}, {"m": B}, {"m": A}, Changes(("m",), ()), id="changed and settled"),
        pytest.param({"m": A}, {}, {"m": A}, Changes((), ()), id="gone, maybe about to be replaced"),
        pytest.param({}, {}, {"m": A}, Changes((), ("m",)), id="gone for good"),
        pytest.param({}, {"m": B}, {"m": A}, Changes((), ()), id="back, and maybe not whole yet"),
        pytest.param({"b": A, "a": A}, {"b": A, "a": A}, {"z": A, "y": B}, Changes(("a", "b"), ("y", "z")), id="in order"),
    ],
)
def test_a_change_counts_when_two_looks_see_the_same(before, now, tried, expected):
    assert changes(before, now, tried) == expected
