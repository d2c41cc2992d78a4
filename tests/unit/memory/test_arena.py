"""An arena makes blocks within its limit, tells of each segment before its first block, and gives memory back."""

import gc
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_peer import memory_peer

from naiad.memory.arena import MEBIBYTE, Arena, ArenaFull, ArenaLimits, Block
from naiad.memory.mapping import Mapping

PAGE = mmap.PAGESIZE
SMALL = ArenaLimits(first_bytes=4 * PAGE, growth_bytes=4 * PAGE, limit_bytes=64 * PAGE, how_to_raise="Raise --limit.")


@dataclass
class Side:
    """An arena and the mapping of its other side, in one process. `on_announce` is called first."""

    limits: ArenaLimits = SMALL
    retired: list[int] = field(default_factory=list)
    announced: dict[int, int] = field(default_factory=dict)
    on_announce: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.mapping = Mapping(writable=False)
        self.arena = Arena(self.limits, self.announce, self.retire)

    def announce(self, segment, fd, size):
        self.on_announce()
        self.mapping.add(segment, os.dup(fd), size)
        self.announced[segment] = size

    def retire(self, segment):
        self.mapping.remove(segment)
        self.retired.append(segment)

    def drop(self, block):
        self.arena.release(block.segment, block.offset)


class Refusal(Exception):
    """What the other side's socket raises."""


@given(st.lists(st.tuples(st.integers(0, 3 * PAGE), st.integers(0, 5)), max_size=60))
def test_blocks_are_aligned_apart_and_seen_by_the_other_side_from_the_first(steps):
    side = Side()
    live: list[tuple[Block, int]] = []
    for number, (size, releases) in enumerate(steps):
        try:
            block = side.arena.allocate(size)
        except ArenaFull:
            continue
        assert (block.offset % 64, block.size) == (0, size)
        mark = number % 251
        side.arena.view(block)[:] = bytes([mark]) * size
        live.append((block, mark))
        for _ in range(min(releases, len(live))):
            side.drop(live.pop(number % len(live))[0])
    for block, mark in live:
        assert bytes(side.mapping.view(*block)) == bytes([mark]) * block.size
    assert side.arena.block_count == len(live)
    assert side.arena.used_bytes == sum(max(1, -(-block.size // 64)) * 64 for block, _ in live)
    assert side.arena.used_bytes <= side.arena.size_bytes == side.mapping.size_bytes <= SMALL.limit_bytes
    for block, _ in live:
        side.drop(block)
    assert (side.arena.used_bytes, side.arena.block_count) == (0, 0)
    assert side.arena.allocate(SMALL.limit_bytes).size == SMALL.limit_bytes


def test_nothing_is_taken_before_the_first_block():
    side = Side()
    assert (side.arena.size_bytes, side.announced) == (0, {})
    assert side.arena.allocate(1) == Block(1, 0, 1)
    assert side.announced == {1: 4 * PAGE}


def test_a_block_of_no_bytes_has_a_place_of_its_own():
    arena = Side().arena
    first, second = arena.allocate(0), arena.allocate(0)
    assert first != second
    assert (len(arena.view(first)), arena.block_count) == (0, 2)
    arena.release(first.segment, first.offset)
    assert arena.block_count == 1


def test_views_are_writable_bytes():
    arena = Side().arena
    view = arena.view(arena.allocate(10))
    assert (view.format, view.nbytes, view.readonly) == ("B", 10, False)


@pytest.mark.parametrize("block", [Block(1, 64, 1), Block(1, 0, 65), Block(1, 0, -1), Block(2, 0, 1), Block(0, 0, 0)])
def test_only_blocks_in_use_have_a_view(block):
    arena = Side().arena
    arena.allocate(64)
    with pytest.raises(ValueError, match="no block"):
        arena.view(block)


@pytest.mark.parametrize("place", [(1, 64), (1, 1), (2, 0), (0, 0), (1, 1 << 63), ((1 << 32) - 1, 0)])
def test_what_a_broken_peer_releases_is_refused_and_changes_nothing(place):
    arena = Side().arena
    arena.allocate(64)
    with pytest.raises(ValueError, match="was released"):
        arena.release(*place)
    assert (arena.block_count, arena.used_bytes) == (1, 64)


def test_a_block_is_released_once():
    arena = Side().arena
    block, _ = arena.allocate(64), arena.allocate(64)
    arena.release(block.segment, block.offset)
    with pytest.raises(ValueError, match="was released"):
        arena.release(block.segment, block.offset)


def test_the_limit_holds_and_the_error_tells_how_to_raise_it():
    arena = Side().arena
    block = arena.allocate(40 * PAGE)
    with pytest.raises(ArenaFull) as caught:
        arena.allocate(40 * PAGE)
    full = caught.value
    assert (full.needed, full.used, full.limit, full.is_hopeless) == (40 * PAGE, 40 * PAGE, 64 * PAGE, False)
    assert str(full) == (
        f"no shared memory for {40 * PAGE} bytes: {40 * PAGE} of at most {64 * PAGE} bytes are in use. Raise --limit."
    )
    arena.release(block.segment, block.offset)
    assert arena.allocate(64 * PAGE).size == 64 * PAGE


def test_a_block_beyond_the_limit_is_hopeless():
    with pytest.raises(ArenaFull) as caught:
        Side().arena.allocate(64 * PAGE + 1)
    assert caught.value.is_hopeless


def test_empty_segments_make_room_for_a_larger_block():
    side = Side()
    side.drop(side.arena.allocate(10 * PAGE))
    assert side.arena.allocate(60 * PAGE).segment == 2
    assert side.retired == [1]
    assert side.arena.size_bytes <= 64 * PAGE


def test_a_thousand_growths_do_not_make_a_thousand_segments():
    side = Side(ArenaLimits(limit_bytes=2048 * MEBIBYTE))
    for _ in range(1000):
        side.arena.allocate(MEBIBYTE)
    assert len(side.announced) < 40
    assert side.arena.size_bytes < 1100 * MEBIBYTE


def test_a_large_block_does_not_make_a_segment_much_larger():
    side = Side(ArenaLimits())
    side.arena.allocate(500 * MEBIBYTE)
    assert side.arena.size_bytes == 500 * MEBIBYTE


def test_a_failed_announcement_leaves_the_arena_as_it_was():
    side = Side()

    def refuse():
        raise Refusal

    side.on_announce = refuse
    gc.collect()
    before = open_descriptors()
    with pytest.raises(Refusal):
        side.arena.allocate(1)
    gc.collect()
    assert open_descriptors() == before
    assert (side.arena.size_bytes, side.arena.block_count) == (0, 0)
    side.on_announce = lambda: None
    assert side.arena.allocate(1) == Block(1, 0, 1)


def test_an_idle_arena_gives_back_all_but_a_reserve():
    side = Side(ArenaLimits())
    small, large = side.arena.allocate(100), side.arena.allocate(100 * MEBIBYTE)
    side.drop(large)
    side.drop(small)
    side.arena.trim()
    assert (side.retired, side.arena.size_bytes) == ([large.segment], MEBIBYTE)
    assert side.mapping.size_bytes == MEBIBYTE
    side.arena.trim()
    assert side.arena.allocate(100).segment == small.segment


def test_a_first_segment_that_is_large_goes_back_too():
    side = Side(ArenaLimits())
    side.drop(side.arena.allocate(100 * MEBIBYTE))
    side.arena.trim()
    assert side.arena.size_bytes == 0


def test_a_segment_with_a_block_in_use_stays():
    side = Side(ArenaLimits())
    kept = side.arena.allocate(20 * MEBIBYTE)
    other = side.arena.allocate(20 * MEBIBYTE)
    assert other.segment == kept.segment
    side.drop(other)
    side.arena.trim()
    assert side.retired == []
    assert len(side.arena.view(kept)) == 20 * MEBIBYTE


def test_a_busy_arena_keeps_what_was_used_since_the_last_time():
    side = Side(ArenaLimits())
    side.drop(side.arena.allocate(100 * MEBIBYTE))
    side.arena.trim(keep_used=True)
    assert side.retired == []
    side.arena.trim(keep_used=True)
    assert side.retired == [1]


def test_numbers_of_segments_do_not_come_again():
    side = Side(ArenaLimits())
    seen = []
    for _ in range(5):
        block = side.arena.allocate(100 * MEBIBYTE)
        seen.append(block.segment)
        side.drop(block)
        side.arena.trim()
    assert seen == [1, 2, 3, 4, 5]


def test_views_outlive_the_arena_and_the_mapping():
    side = Side()
    block = side.arena.allocate(100)
    ours, theirs = np.frombuffer(side.arena.view(block), np.uint8), side.mapping.view(*block)
    ours[:] = 5
    side.arena.close()
    side.mapping.close()
    gc.collect()
    assert (bytes(theirs), ours.sum()) == (b"\5" * 100, 500)


def test_a_closed_arena_makes_no_block():
    side = Side()
    side.arena.allocate(1)
    side.arena.close()
    assert (side.arena.size_bytes, side.arena.used_bytes, side.arena.block_count, side.retired) == (0, 0, 0, [])
    with pytest.raises(ArenaFull, match="closed"):
        side.arena.allocate(1)


def test_a_thousand_cycles_leak_no_descriptor_and_no_mapping():
    side = Side(ArenaLimits())
    gc.collect()
    before = open_descriptors(), mappings()
    for _ in range(1000):
        block = side.arena.allocate(9 * MEBIBYTE)
        np.frombuffer(side.mapping.view(*block), np.uint8)[:PAGE].sum()
        side.drop(block)
        side.arena.trim()
    assert len(side.retired) == 1000
    side.arena.close()
    side.mapping.close()
    gc.collect()
    assert open_descriptors() <= before[0]
    assert mappings() <= before[1]


def test_blocks_are_shared_with_another_process_both_ways():
    with memory_peer() as peer:
        arena = Arena(ArenaLimits(), peer.map, peer.forget)
        small, large = arena.allocate(5), arena.allocate(30 * MEBIBYTE)
        arena.view(small)[:] = b"hello"
        arena.view(large)[-2:] = b"\1\2"
        assert peer.read(small) == b"hello"
        assert peer.read((large.segment, large.offset + large.size - 3, 3)) == b"\0\1\2"
        peer.write(small, b"HELLO")
        assert bytes(arena.view(small)) == b"HELLO"
        arena.release(large.segment, large.offset)
        arena.trim()
        assert peer.read(small) == b"HELLO"


def open_descriptors() -> int:
    return psutil.Process().num_fds()


def mappings() -> int:
    """How many pieces of shared memory of ours this process has mapped."""
    if sys.platform != "linux":
        return 0
    with Path("/proc/self/maps").open() as lines:
        return sum("memfd:naiad" in line for line in lines)
