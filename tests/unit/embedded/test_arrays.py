"""What a program's arrays become on their way into the server, and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from naiad.errors import Code, InferenceServerError
from naiad.server.embedded import arrays
from naiad.tensor.datatype import ALL, BF16, BYTES


def test_every_datatype_of_the_protocol_has_a_dtype_in_programs():
    for datatype in ALL:
        dtype = ml_dtypes.bfloat16 if datatype is BF16 else datatype.numpy
        assert arrays.datatype_of(dtype, "t") is datatype
        assert arrays.datatype_of(datatype.name, "t") is datatype


@pytest.mark.parametrize("dtype", [bytes, str, object, "S5", "U3"])
def test_every_kind_of_string_is_bytes(dtype):
    assert arrays.datatype_of(dtype, "t") is BYTES


@pytest.mark.parametrize("dtype", ["c8", "datetime64[s]", "nonsense", None, np.longdouble])
def test_what_the_protocol_does_not_have_is_refused_by_name(dtype):
    with pytest.raises(InferenceServerError, match="tensor 'x'") as raised:
        arrays.datatype_of(dtype, "tensor 'x'")
    assert raised.value.code is Code.INVALID_ARGUMENT


NUMBERS = [datatype.numpy for datatype in ALL if datatype not in (BYTES, BF16)]


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))))
def test_numbers_stay_what_they_are(array):
    datatype, inside = arrays.to_server(array, "x")
    assert datatype.numpy == array.dtype
    assert inside.shape == array.shape
    assert inside.tobytes() == array.tobytes()
    assert inside.flags.c_contiguous


def test_contiguous_numbers_are_not_copied():
    array = np.ones((2, 3), np.float32)
    assert np.shares_memory(arrays.to_server(array, "x")[1], array)


@pytest.mark.parametrize("array", [np.arange(6, dtype=">i4").reshape(2, 3), np.arange(6, dtype="i4").reshape(3, 2).T])
def test_another_byte_order_or_layout_is_put_right(array):
    datatype, inside = arrays.to_server(array, "x")
    assert datatype.name == "INT32"
    assert inside.dtype == np.dtype("<i4")
    assert inside.flags.c_contiguous
    assert inside.tolist() == array.tolist()


def test_bfloat16_goes_in_and_comes_out_as_such():
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    datatype, inside = arrays.to_server(array, "x")
    assert (datatype, inside.dtype) == (BF16, np.dtype("<u2"))
    outside = arrays.from_server(BF16, inside)
    assert outside.dtype == ml_dtypes.bfloat16
    assert outside.tolist() == [1.5, -2]


@pytest.mark.parametrize(
    "value",
    [["a", "ü"], np.array(["a", "ü"]), np.array([b"a", "ü"], object), np.array([b"a", "ü".encode()])],
    ids=["list", "numpy text", "mixed objects", "numpy bytes"],
)
def test_strings_become_bytes_in_utf_8(value):
    datatype, inside = arrays.to_server(value, "x")
    assert datatype is BYTES
    assert inside.dtype == object
    assert inside.tolist() == [b"a", "ü".encode()]


@pytest.mark.parametrize("bad", [None, 3, "\ud800"], ids=["None", "number", "lone surrogate"])
def test_an_element_that_is_no_string_is_named(bad):
    with pytest.raises(InferenceServerError, match=r"^input .x.: element 1 is") as raised:
        arrays.to_server(np.array([b"a", bad], object), "input 'x'")
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_what_numpy_makes_no_array_of_is_refused():
    with pytest.raises(InferenceServerError, match="input 'x' is no array"):
        arrays.to_server([[1, 2], [3]], "input 'x'")


@given(hnp.array_shapes(min_dims=0, min_side=0).flatmap(lambda shape: hnp.arrays(object, shape, elements=st.binary())))
def test_bytes_of_any_shape_stay_what_they_are(array):
    _, inside = arrays.to_server(array, "x")
    assert inside.shape == array.shape
    assert inside.tolist() == array.tolist()
