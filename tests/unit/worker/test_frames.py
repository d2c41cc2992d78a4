"""Frames come out as they went in, however the stream was cut, and a stream that can't be one of frames is refused."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.memory.arena import Block
from naiad.worker.frames import (
    FLAG_FINAL,
    HEADER,
    MAX_TAIL_BYTES,
    NO_BLOCK,
    Frame,
    FrameReader,
    Kind,
    pack,
    pack_blocks,
    unpack_blocks,
)

U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
FRAMES = st.lists(st.builds(Frame, U16, U16, U64, U64, U32, U64, U64, st.binary(max_size=90)), max_size=6)


def packed(frame: Frame) -> bytes:
    block = Block(frame.segment, frame.offset, frame.size)
    return pack(frame.kind, frame.id, frame.tail, flags=frame.flags, block=block, value=frame.value)


@given(FRAMES, st.data())
def test_any_split_of_the_stream_gives_the_same_frames(frames, data):
    stream = b"".join(map(packed, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    edges = [0, *cuts, len(stream)]
    assert [frame for start, end in itertools.pairwise(edges) for frame in reader.feed(stream[start:end])] == frames


def test_a_frame_comes_with_its_last_byte():
    frames = [Frame(Kind.LOG, 0, 1, 2, 3, 4, 5, b"tail"), Frame(Kind.CREDIT, FLAG_FINAL, 9, 8, 0, 0, 0, b"")]
    reader = FrameReader()
    got = [reader.feed(bytes([byte])) for byte in b"".join(map(packed, frames))]
    first = HEADER.size + len(frames[0].tail)
    assert got[first - 1] == frames[:1]
    assert got[-1] == frames[1:]
    assert sum(map(len, got)) == 2


def test_a_frame_without_more_names_no_block():
    [frame] = FrameReader().feed(pack(Kind.FINALIZE, 7))
    assert frame == (Kind.FINALIZE, 0, 7, 0, *NO_BLOCK, b"")


def test_a_tail_is_a_copy():
    data = bytearray(pack(Kind.LOG, 0, b"before"))
    [frame] = FrameReader().feed(bytes(data))
    data[-6:] = b"after!"
    assert frame.tail == b"before"


@pytest.mark.parametrize("cut", [1, 4, HEADER.size])
def test_a_tail_too_long_to_be_one_is_refused_with_its_header(cut):
    header = HEADER.pack(MAX_TAIL_BYTES + 1, Kind.LOG, 0, 0, 0, 0, 0, 0)
    reader = FrameReader()
    assert reader.feed(pack(Kind.HELLO, 1) + header[: cut - 1]) != []
    with pytest.raises(ValueError, match=f"kind {Kind.LOG:d} has a tail of {MAX_TAIL_BYTES + 1} bytes"):
        reader.feed(header[cut - 1 :])


def test_the_longest_tail_is_waited_for():
    assert FrameReader().feed(HEADER.pack(MAX_TAIL_BYTES, Kind.LOG, 0, 0, 0, 0, 0, 0) + b"begin") == []


@given(st.lists(st.tuples(U32, U64)))
def test_released_blocks_come_out_as_they_went_in(blocks):
    assert list(unpack_blocks(pack_blocks(blocks))) == blocks


@given(st.lists(st.tuples(U32, U64), min_size=1), st.integers(1, 11))
def test_half_a_block_is_refused(blocks, missing):
    with pytest.raises(struct.error):
        list(unpack_blocks(pack_blocks(blocks)[:-missing]))


@given(st.binary(min_size=HEADER.size, max_size=200))
def test_noise_is_refused_or_frames_but_nothing_else(noise):
    reader = FrameReader()
    try:
        frames = reader.feed(noise)
    except ValueError:
        return
    assert noise.startswith(b"".join(map(packed, frames)))
