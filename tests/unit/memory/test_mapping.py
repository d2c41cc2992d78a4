"""A mapping shows the other side's segments, and nothing outside of them."""

import os

import pytest

from naiad.memory.mapping import Mapping
from naiad.memory.segment import create_segment


@pytest.fixture
def mapping():
    mapping = Mapping(writable=True)
    mapping.add(3, create_segment(4096), 4096)
    return mapping


@pytest.mark.parametrize(
    ("offset", "size"), [(4096, 1), (0, 4097), (4095, 2), (1 << 63, 1), (0, 1 << 63), (-1, 1), (1, -1), (4097, 0)]
)
def test_a_block_outside_its_segment_is_refused(mapping, offset, size):
    with pytest.raises(ValueError, match="doesn't lie in segment 3 of 4096 bytes"):
        mapping.view(3, offset, size)


@pytest.mark.parametrize(("offset", "size"), [(0, 4096), (4095, 1), (4096, 0), (0, 0)])
def test_a_block_at_the_edge_is_seen(mapping, offset, size):
    assert len(mapping.view(3, offset, size)) == size


def test_a_segment_that_is_not_there_is_refused(mapping):
    with pytest.raises(ValueError, match="segment 4, which isn't there"):
        mapping.view(4, 0, 0)
    with pytest.raises(ValueError, match="segment 4 was taken back"):
        mapping.remove(4)


def test_a_segment_is_announced_once(mapping):
    fd = create_segment(4096)
    with pytest.raises(ValueError, match="segment 3 was announced twice"):
        mapping.add(3, fd, 4096)
    assert is_closed(fd)
    assert mapping.size_bytes == 4096


def test_a_segment_that_can_be_cut_is_refused_and_its_descriptor_closed(mapping):
    fd = os.memfd_create("unsealed")
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="sealed"):
        mapping.add(4, fd, 4096)
    assert is_closed(fd)


def test_the_descriptor_is_closed_once_the_segment_is_mapped():
    fd = create_segment(4096)
    Mapping(writable=False).add(1, fd, 4096)
    assert is_closed(fd)


@pytest.mark.parametrize("writable", [True, False])
def test_views_may_be_written_to_when_the_mapping_says_so(writable):
    mapping = Mapping(writable=writable)
    mapping.add(1, create_segment(4096), 4096)
    view = mapping.view(1, 0, 10)
    assert (view.readonly, view.format) == (not writable, "B")


def test_a_view_outlives_its_segment(mapping):
    view = mapping.view(3, 0, 4)
    view[:] = b"abcd"
    mapping.remove(3)
    assert (bytes(view), mapping.size_bytes) == (b"abcd", 0)
    with pytest.raises(ValueError, match="isn't there"):
        mapping.view(3, 0, 4)


def is_closed(fd: int) -> bool:
    """Whether nobody opened the number again either: tests run one after the other."""
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False
