"""Tensors lie in blocks as messages say, whatever their type and shape; responses are checked against the model's outputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.worker.api.errors import TritonError
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor
from naiad.worker.batches import BlockWriter, LayoutReader, ResponseWriter, ResultTails, as_json, received_tensors

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


def written(*tensors: Tensor) -> tuple[list, np.ndarray]:
    """Return the messages of tensors and the block that they were written to."""
    writer = BlockWriter()
    messages = [writer.add(tensor) for tensor in tensors]
    block = bytearray(writer.size)
    writer.copy_to(memoryview(block))
    return messages, np.frombuffer(block, np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3, 2), (0,), (2, 0, 3)])
def test_an_array_of_any_type_and_shape_comes_out_as_it_went_in(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    messages, block = written(Tensor("A", array), Tensor("B", array))
    for tensor in received_tensors(messages, block):
        assert tensor.as_numpy().dtype == array.dtype
        assert tensor.as_numpy().tolist() == (array if shape else array.reshape(1)).tolist()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.int16)[::-2],
        np.arange(4, dtype=">i4"),
        np.broadcast_to(np.float32(3), (2, 5)),
    ],
    ids=["transposed", "backward", "big-endian", "broadcast"],
)
def test_an_array_of_any_layout_is_sent_in_order(array):
    messages, block = written(Tensor("A", array))
    assert received_tensors(messages, block)[0].as_numpy().tolist() == array.tolist()


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=5), min_size=1, max_size=4))
def test_strings_come_out_as_they_went_in(lists):
    messages, block = written(*[Tensor("A", np.array(items + [None], object)[:-1]) for items in lists])
    assert [tensor.as_numpy().tolist() for tensor in received_tensors(messages, block)] == lists


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_tensors_are_aligned_and_do_not_overlap(sizes):
    messages, block = written(*[Tensor("A", np.full(size, index, np.uint8)) for index, size in enumerate(sizes)])
    end = 0
    for (_, _, _, offset, size), wanted in zip(messages, sizes):
        assert (offset % 64, size) == (0, wanted)
        assert offset >= end
        end = offset + size
    assert len(block) == end


def test_what_was_added_since_a_mark_can_be_forgotten():
    writer = BlockWriter()
    writer.add(Tensor("A", np.ones(3, np.uint8)))
    mark = writer.mark()
    writer.add(Tensor("B", np.ones(300, np.uint8)))
    writer.back_to(mark)
    assert writer.size == 3
    block = bytearray(3)
    writer.copy_to(memoryview(block))
    assert bytes(block) == b"\1\1\1"


# Responses.


class Written:
    """A writer of a model's responses, whose `warnings` are kept."""

    def __init__(self, *declared: str) -> None:
        self.warnings: list[str] = []
        self.block = BlockWriter()
        self._writer = ResponseWriter("m", declared, self.warnings.append)

    def message(self, *wanted: str, error: TritonError | None = None, **arrays: object) -> dict:
        tensors = [Tensor(name, np.asarray(array)) for name, array in arrays.items()]
        return self._writer.message(InferenceResponse(tensors, error), wanted, self.block)


def test_the_wanted_outputs_are_sent_in_the_wanted_order_and_no_others():
    message = Written("A", "B", "C").message("C", "A", A=[1.0], B=[2.0], C=[3.0])
    assert [item[0] for item in message["outputs"]] == ["C", "A"]


def test_a_wanted_output_that_is_missing_is_left_to_the_server():
    assert [item[0] for item in Written("A", "B").message("A", "B", A=[1.0])["outputs"]] == ["A"]


def test_an_output_that_is_not_declared_is_left_out_and_said_once():
    writer = Written("A")
    for _ in range(2):
        assert [item[0] for item in writer.message("A", A=[1.0], Q=[1.0])["outputs"]] == ["A"]
    assert writer.warnings == ["a response holds a tensor that is left out: 'Q' is no output of the model, which declares: A"]


def test_a_misspelt_output_is_an_error_with_the_near_name():
    text = Written("Output_A").message("Output_A", output_a=[1.0])["error"][1]
    assert text == (
        "model 'm' returned a wrong output: 'output_a' is no output of the model, which declares: Output_A; "
        "did you mean 'Output_A'?"
    )


def test_an_output_that_cannot_be_sent_takes_no_room():
    writer = Written("A", "B")
    code, text = writer.message("A", "B", A=[1.0], B=[1j])["error"]
    assert (code, writer.block.size) == ("INTERNAL", 0)
    assert "complex128" in text


def test_an_error_counts_and_its_tensors_do_not():
    writer = Written("A")
    assert writer.message("A", error=TritonError("no", TritonError.NOT_FOUND), A=[1.0]) == {"error": ("NOT_FOUND", "no")}
    assert writer.block.size == 0


def test_a_very_long_text_of_an_error_is_cut():
    (_, text) = Written("A").message("A", error=TritonError("x" * 200_000))["error"]
    assert len(text) < 70_000
    assert text.endswith("characters more)")


# Tails.


def test_tails_that_come_again_are_read_once_and_long_ones_are_not_kept():
    reader = LayoutReader()
    short = as_json([{"inputs": []}])
    long = as_json([{"inputs": [], "parameters": {"p": "x" * 100_000}}])
    assert reader.read(short) is reader.read(bytes(bytearray(short)))
    assert reader.read(long) == reader.read(long)
    assert reader.read(long) is not reader.read(long)


def test_the_tail_of_a_result_is_that_of_its_own_responses():
    tails = ResultTails()
    one = [{"outputs": [("A", "FP32", (1,), 0, 4)]}]
    other = [{"outputs": [("A", "FP32", (2,), 0, 8)]}]
    for responses in (one, other, one * 2, one, [{**one[0], "parameters": {"p": 1}}], [{"error": ("INTERNAL", "no")}]):
        assert tails.write(responses) == as_json(responses)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_is_no_json_is_refused(value):
    with pytest.raises((TypeError, ValueError)):
        as_json({"x": value})
