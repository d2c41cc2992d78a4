"""Tensors: every numpy dtype is sent exactly, or refused by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from naiad.tensor import bytes_tensor
from naiad.worker.api.datatypes import deserialize_bytes_tensor, serialize_byte_tensor
from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.tensor import Tensor

EXACT = {
    "?": "BOOL", "u1": "UINT8", "u2": "UINT16", "u4": "UINT32", "u8": "UINT64", "i1": "INT8", "i2": "INT16", "i4": "INT32",
    "i8": "INT64", "f2": "FP16", "f4": "FP32", "f8": "FP64", "q": "INT64", "Q": "UINT64",
}  # fmt: skip
REFUSED = ["c8", "c16", "M8[s]", "m8[s]", "V3", [("a", "f4")]] + (["g"] if np.dtype("g").itemsize > 8 else [])


def sent(array):
    datatype, shape, data = Tensor("Y", array).wire()
    return datatype, shape, bytes(data)


def texts(array):
    datatype, shape, data = sent(array)
    assert datatype == "BYTES"
    return bytes_tensor.decode(data, 100), shape


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_are_sent_little_endian_with_the_datatype_of_their_dtype(dtype, order):
    array = np.array([[0, 1, 1]], dtype).astype(np.dtype(dtype).newbyteorder(order))
    assert sent(array) == (EXACT[dtype], (1, 3), array.astype(array.dtype.newbyteorder("<")).tobytes())


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_a_dtype_without_a_datatype_is_refused_by_name(dtype):
    tensor = Tensor("Y", np.zeros(2, dtype))
    with pytest.raises(TritonModelException) as error:
        tensor.wire()
    assert "'Y'" in str(error.value)
    assert str(np.dtype(dtype)) in str(error.value)
    assert tensor.triton_dtype() == 0


def test_bfloat16_of_ml_dtypes_is_bf16():
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert sent(array) == ("BF16", (2,), array.tobytes())


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(["setosa", "virginica"]), [b"setosa", b"virginica"]),
        (np.array([b"setosa", b"virginica"]), [b"setosa", b"virginica"]),
        (np.array(["setosa", b"virginica"], object), [b"setosa", b"virginica"]),
        (np.array(["é", "", "日本"]), ["é".encode(), b"", "日本".encode()]),
        (np.array([], "<U1"), []),
        (np.array("x"), [b"x"]),
        (np.array([1, 2.5, True, np.int8(3)], object), [b"1", b"2.5", b"True", b"3"]),
        (np.array([[b"a\0"], [b"\0b"]], object), [b"a\0", b"\0b"]),
        (np.array(["é"], ">U1"), ["é".encode()]),
    ],
)
def test_strings_of_all_kinds_are_sent_as_utf8_or_as_they_are(array, expected):
    assert texts(array) == (expected, array.shape or (1,))


@pytest.mark.parametrize(
    ("element", "text"),
    [(None, "None"), ([1], "a list"), (1j, "a complex"), (object(), "a object"), ("\ud800", "UTF-8")],
)
def test_an_element_without_bytes_is_refused_with_its_index_and_type(element, text):
    array = np.empty((2, 2), object)
    array[:] = "x"
    array[1, 0] = element
    with pytest.raises(TritonModelException) as error:
        Tensor("Y", array).wire()
    assert all(part in str(error.value) for part in ("'Y'", "[1, 0]", text))


@pytest.mark.parametrize("value", [[1, 2], 1.0, np.float32(1), "x", None, np.ma.masked_array([1], [True])], ids=repr)
def test_what_is_no_numpy_array_is_refused_at_once(value):
    with pytest.raises(TritonModelException, match=r"tensor 'Y' needs a (plain )?numpy array"):
        Tensor("Y", value)


def test_an_array_without_dims_has_shape_1():
    assert sent(np.array(3, np.int32)) == ("INT32", (1,), b"\3\0\0\0")


def test_a_non_contiguous_array_is_sent_in_c_order():
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert sent(array) == ("INT32", (3, 2), array.tobytes())


def test_an_empty_array_is_sent_without_bytes():
    assert sent(np.zeros((0, 16), np.float32)) == ("FP32", (0, 16), b"")


def test_a_received_tensor_is_a_writable_view():
    data = np.arange(8, dtype=np.float32).view(np.uint8)
    tensor = Tensor.received("X", "FP32", [2, 4], data)
    array = tensor.as_numpy()
    array[1, 3] = 9
    assert (array.shape, array.dtype, data.view(np.float32)[7]) == ((2, 4), np.float32, 9)
    assert bytes(tensor.wire()[2]) == data.tobytes()


def test_received_strings_are_decoded_once_and_sent_as_they_came():
    data = np.frombuffer(bytes_tensor.encode([b"a", b"\xff\0"]), np.uint8)
    tensor = Tensor.received("X", "BYTES", [2, 1], data)
    assert tensor.wire() == ("BYTES", (2, 1), data.tobytes())
    assert tensor.as_numpy().tolist() == [[b"a"], [b"\xff\0"]]
    assert tensor.as_numpy() is tensor.as_numpy()


def test_the_helpers_for_strings_are_each_others_inverse():
    array = np.array([b"a", b"", b"\0\0"], object)
    assert deserialize_bytes_tensor(serialize_byte_tensor(array)).tolist() == array.tolist()
    with pytest.raises(TritonModelException, match="incomplete"):
        deserialize_bytes_tensor(b"\5\0\0\0ab")


@pytest.mark.parametrize("dtype", [dtype for dtype in EXACT if dtype not in "qQ"])
def test_dlpack_shares_memory_both_ways(dtype):
    array = np.array([[0, 1], [1, 0]], dtype)
    tensor = Tensor.from_dlpack("Y", Tensor("X", array))
    assert tensor.as_numpy().dtype == array.dtype
    assert np.shares_memory(tensor.as_numpy(), array)
    assert tensor.wire()[:2] == (EXACT[dtype], (2, 2))


def test_bf16_goes_through_dlpack_only():
    words = np.array([0x3FC0, 0xC000], np.uint16)
    tensor = Tensor.received("X", "BF16", [2], words.view(np.uint8))
    with pytest.raises(TritonModelException, match="DLPack"):
        tensor.as_numpy()
    passed_on = Tensor.from_dlpack("Y", tensor.to_dlpack())
    datatype, shape, data = passed_on.wire()
    assert (datatype, shape, bytes(data)) == ("BF16", (2,), words.tobytes())


def test_a_capsule_is_used_once():
    capsule = Tensor("X", np.zeros(2, np.float32)).to_dlpack()
    Tensor.from_dlpack("Y", capsule)
    with pytest.raises(TritonModelException, match="tensor 'Y'"):
        Tensor.from_dlpack("Y", capsule)


def test_strings_and_foreign_devices_have_no_dlpack():
    with pytest.raises(TritonModelException, match="strings"):
        Tensor("X", np.array(["a"])).to_dlpack()
    with pytest.raises(BufferError):
        Tensor("X", np.zeros(2)).__dlpack__(dl_device=(2, 0))
    with pytest.raises(TritonModelException, match="has no DLPack"):
        Tensor.from_dlpack("X", [1])


class OnDevice:
    """A tensor of a GPU that can be copied to the host."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise AssertionError("the device was read")

    def cpu(self):
        return np.ones(2, np.float32)


def test_a_tensor_of_a_gpu_is_copied_to_the_host():
    assert Tensor.from_dlpack("Y", OnDevice()).as_numpy().tolist() == [1, 1]
