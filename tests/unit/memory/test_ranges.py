"""The allocator of one segment: ranges never overlap, and what is given back can be taken again as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from naiad.memory.ranges import ALIGNMENT, Ranges

SIZE = 64 * ALIGNMENT


class RangesMachine(RuleBasedStateMachine):
    """Any order of taking and giving back, against a map of every unit of the segment."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = Ranges(SIZE)
        self.units = [False] * (SIZE // ALIGNMENT)

    def longest_gap(self) -> int:
        text = "".join("x" if taken else " " for taken in self.units)
        return max(map(len, text.split("x")))

    @rule(units=st.integers(1, 20))
    def take(self, units):
        offset = self.ranges.take(units * ALIGNMENT)
        if offset < 0:
            assert self.longest_gap() < units
            return
        assert offset % ALIGNMENT == 0
        first = offset // ALIGNMENT
        assert not any(self.units[first : first + units])
        assert first + units <= len(self.units)
        self.units[first : first + units] = [True] * units

    @precondition(lambda self: self.ranges.taken)
    @rule(data=st.data())
    def give_back(self, data):
        offset = data.draw(st.sampled_from(sorted(self.ranges.taken)))
        length = self.ranges.give_back(offset)
        first, units = offset // ALIGNMENT, length // ALIGNMENT
        assert all(self.units[first : first + units])
        self.units[first : first + units] = [False] * units

    @rule(offset=st.integers(0, 2 * SIZE))
    def give_back_what_is_not_taken(self, offset):
        if offset not in self.ranges.taken:
            with pytest.raises(ValueError, match="none is in use there"):
                self.ranges.give_back(offset)

    @invariant()
    def what_is_taken_is_known(self):
        assert sum(self.ranges.taken.values()) == sum(self.units) * ALIGNMENT

    def teardown(self):
        for offset in list(self.ranges.taken):
            self.ranges.give_back(offset)
        assert self.ranges.take(SIZE) == 0


TestRanges = RangesMachine.TestCase


@given(st.permutations(range(16)))
def test_given_back_in_any_order_ranges_join_to_one(order):
    ranges = Ranges(16 * ALIGNMENT)
    offsets = [ranges.take(ALIGNMENT) for _ in range(16)]
    assert ranges.take(ALIGNMENT) == -1
    for index in order[:-1]:
        ranges.give_back(offsets[index])
    kept = offsets[order[-1]]
    before, after = kept, 15 * ALIGNMENT - kept
    for gap in filter(None, sorted((before, after), reverse=True)):
        assert ranges.take(gap) >= 0
    assert ranges.take(ALIGNMENT) == -1


def test_ranges_made_and_given_back_in_order_stay_at_the_beginning():
    ranges = Ranges(SIZE)
    for _ in range(1000):
        first, second = ranges.take(ALIGNMENT), ranges.take(ALIGNMENT)
        assert (first, second) == (0, ALIGNMENT)
        ranges.give_back(first)
        ranges.give_back(second)


def test_a_gap_is_taken_before_untouched_memory():
    ranges = Ranges(SIZE)
    first, _ = ranges.take(4 * ALIGNMENT), ranges.take(ALIGNMENT)
    ranges.give_back(first)
    assert ranges.take(2 * ALIGNMENT) == 0
    assert ranges.take(2 * ALIGNMENT) == 2 * ALIGNMENT
    assert ranges.take(2 * ALIGNMENT) == 5 * ALIGNMENT
