"""Rules of the choice between versions, of sequences that stay together, and of what settings may be."""

from __future__ import annotations

from collections import Counter

import pytest

from naiad.core.traffic.policy import Split, sequence_point
from naiad.core.traffic.sequences import MOST_OPEN, OpenSequences


def test_each_version_has_as_many_points_as_weight():
    split = Split({1: 90, 2: 10})
    assert Counter(split.at(point / 1000) for point in range(1000)) == {1: 900, 2: 100}


def test_weights_have_any_unit():
    points = [point / 64 for point in range(64)]
    assert [Split({1: 0.25, 7: 0.75}).at(point) for point in points] == [Split({1: 1, 7: 3}).at(point) for point in points]


@pytest.mark.parametrize("weights", [{1: 0.1, 2: 0.2, 3: 0.7}, {1: 1e9, 2: 1e-9}, {5: 1}])
def test_the_last_point_belongs_to_the_last_version_that_has_room(weights):
    assert Split(weights).at(1 - 2**-53) in weights


def test_shares_add_up_to_one():
    assert Split({1: 90, 2: 10, 3: 100}).shares() == {1: 0.45, 2: 0.05, 3: 0.5}


def test_sequences_are_shared_by_weight_and_each_has_one_version():
    split = Split({1: 75, 2: 25})
    counts = Counter(split.for_sequence(number) for number in range(1, 2001))
    assert 1400 < counts[1] < 1600
    assert [split.for_sequence("a") for _ in range(5)] == [split.for_sequence("a")] * 5


def test_a_version_that_leaves_moves_only_its_own_sequences():
    before, after = Split({1: 1, 2: 1, 3: 1}), Split({1: 1, 2: 1})
    moved = {number for number in range(300) if before.for_sequence(number) != after.for_sequence(number)}
    assert moved == {number for number in range(300) if before.for_sequence(number) == 3}


def test_an_integer_and_its_digits_are_two_sequences_and_points_are_spread():
    assert sequence_point(5, "split") != sequence_point("5", "split")
    assert sequence_point(5, "split") != sequence_point(5, "shadow")
    points = [sequence_point(number, "split") for number in range(1000)]
    assert all(0 <= point < 1 for point in points)
    assert 400 < sum(point < 0.5 for point in points) < 600


def accepted(sequences: OpenSequences, sequence_id: object, new: int, ready: set[int], flags: str = "") -> int:
    """Return the version that a request goes to, which accepts it; `new` is that of new sequences, S starts one, E ends it."""
    version = sequences.choose(sequence_id, lambda _: new, ready, is_start="S" in flags)
    sequences.note(sequence_id, version, is_end="E" in flags)
    return version


def test_an_open_sequence_stays_where_it_is_whatever_the_weights_have_become():
    sequences, ready = OpenSequences(), {1, 2}
    assert accepted(sequences, "s", 1, ready, "S") == 1
    assert accepted(sequences, "s", 2, ready) == 1
    assert accepted(sequences, "s", 2, ready, "E") == 1
    assert len(sequences) == 0
    assert accepted(sequences, "s", 2, ready) == 2
    assert accepted(sequences, "s", 1, ready, "S") == 1


def test_a_refused_request_changes_nothing_for_its_sequence():
    sequences, ready = OpenSequences(), {1, 2}
    accepted(sequences, "s", 1, ready, "S")
    for _ in range(2):
        assert sequences.choose("s", lambda _: 2, ready, is_start=False) == 1
    assert sequences.choose("other", lambda _: 2, ready, is_start=True) == 2
    assert len(sequences) == 1


def test_a_sequence_moves_when_its_version_is_gone():
    sequences = OpenSequences()
    accepted(sequences, "s", 1, {1, 2}, "S")
    assert accepted(sequences, "s", 2, {2}) == 2
    assert accepted(sequences, "s", 1, {1, 2}) == 2


def test_the_memory_of_sequences_is_bounded_and_the_oldest_is_forgotten():
    sequences = OpenSequences()
    for number in range(MOST_OPEN + 1):
        accepted(sequences, number, 1, {1, 2}, "S")
    assert len(sequences) == MOST_OPEN
    assert accepted(sequences, 1, 2, {1, 2}) == 1
    assert accepted(sequences, 0, 2, {1, 2}) == 2
