"""gRPC's message framing: any cut of the bytes gives the same messages; what breaks the rules is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.wire.grpc.framing import MessageReader, prefix

MESSAGES = st.lists(
    st.tuples(st.sampled_from([0, 1, 4, 5, 6, 1023, 1024, 20000]), st.booleans()).map(lambda s: (b"\xa5" * s[0], s[1])),
    min_size=1,
    max_size=5,
)


@given(MESSAGES, st.lists(st.sampled_from([1, 2, 4, 5, 6, 100, 16384, 50000]), min_size=1, max_size=9))
def test_every_cut_gives_the_same_messages(messages, sizes) -> None:
    body = b"".join(prefix(len(data), flag) + data for data, flag in messages)
    reader, found, position, turn = MessageReader(1 << 20), [], 0, 0
    while position < len(body):
        size = sizes[turn % len(sizes)] if turn < 2000 else len(body)
        found += reader.feed(body[position : position + size])
        position += size
        turn += 1
    assert messages == [(bytes(message.data), message.is_compressed) for message in found]
    assert reader.is_between_messages


def test_a_body_that_ends_within_a_message_is_known() -> None:
    reader = MessageReader(100)
    assert reader.feed(prefix(10, False) + b"123") == []
    assert not reader.is_between_messages


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_flag_other_than_0_and_1_is_refused(cut) -> None:
    reader = MessageReader(100)
    framed = b"\x02\0\0\0\x01x"
    pieces = [framed[start : start + cut] for start in range(0, len(framed), cut)]
    with pytest.raises(InferenceServerError, match="flag byte of a gRPC message is 2") as raised:
        list(map(reader.feed, pieces))
    assert raised.value.code is Code.INTERNAL


def test_a_length_over_the_limit_is_refused_by_its_prefix() -> None:
    with pytest.raises(InferenceServerError, match="4294967295 bytes is larger than the limit of 1000") as raised:
        MessageReader(1000).feed(b"\0\xff\xff\xff\xff")
    assert raised.value.code is Code.RESOURCE_EXHAUSTED


def test_no_memory_is_taken_for_an_announced_length() -> None:
    reader = MessageReader(2**31 - 1)
    reader.feed(b"\0\x7f\xff\xff\xffabc")
    assert sum(len(piece) for piece in reader._pieces) == 3


@pytest.mark.parametrize("size", [16_385, 100_003, 602_112 + 57])
def test_the_last_tensor_of_a_large_message_in_pieces_lies_on_a_boundary(size: int) -> None:
    body = prefix(size, False) + bytes(range(256)) * (size // 256) + bytes(size % 256)
    reader = MessageReader(1 << 20)
    found = [message for start in range(0, len(body), 16_384) for message in reader.feed(body[start : start + 16_384])]
    assert [bytes(message.data) for message in found] == [body[5:]]
    tensor = np.frombuffer(found[0].data, np.float64, 2000, size - 16_000)
    assert tensor.flags.aligned
