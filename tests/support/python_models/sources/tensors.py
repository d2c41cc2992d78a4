"""What `pb_utils.Tensor` says of itself and what it refuses."""

import numpy as np
import triton_python_backend_utils as pb_utils


def made(array, name="T"):
    return pb_utils.Tensor(name, array)


def facts(array):
    tensor = made(array)
    back = tensor.as_numpy()
    return f"{tensor.name()} {back.dtype} {list(back.shape)} {back.tolist()}"


def name_and_array(model, request):
    return facts(np.array([[1, 2.5]], np.float32))


def is_cpu(model, request):
    return made(np.zeros(2, np.float32)).is_cpu()


def triton_dtype(model, request):
    return made(np.zeros(2, np.float32)).triton_dtype()


def shape(model, request):
    value = made(np.zeros((2, 3), np.int8)).shape()
    return f"{type(value).__name__} {list(value)}"


def received_strings(model, request):
    tensor = pb_utils.get_input_tensor_by_name(request, "NAME")
    array = tensor.as_numpy()
    return f"{array.dtype} {array.shape} {type(array.flat[0]).__name__} {array.flat[0]!r}"


def bytes_array(model, request):
    return facts(np.array([b"a", b"", "é".encode()], dtype=object))


def text_array(model, request):
    return facts(np.array(["a", "é"], dtype=object))


def mixed_array(model, request):
    return facts(np.array(["a", b"b", 3, 2.5, True], dtype=object))


def none_in_array(model, request):
    return facts(np.array([b"a", None], dtype=object))


def unicode_array(model, request):
    return facts(np.array(["setosa", "virginica"]))


def fixed_bytes_array(model, request):
    return facts(np.array([b"setosa", b"virginica"]))


def bool_array(model, request):
    return facts(np.array([True, False]))


def float16_array(model, request):
    return facts(np.array([0.5], np.float16))


def zero_dimensions(model, request):
    return facts(np.array(7, np.int32))


def no_elements(model, request):
    return facts(np.zeros((0, 3), np.float32))


def fortran_order(model, request):
    array = made(np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))).as_numpy()
    return f"{array.flags.c_contiguous} {array.tolist()}"


def strided(model, request):
    array = made(np.arange(8, dtype=np.int32)[::2]).as_numpy()
    return f"{array.flags.c_contiguous} {array.tolist()}"


def broadcast(model, request):
    return facts(np.broadcast_to(np.float32(3), (2, 2)))


def big_endian(model, request):
    return facts(np.array([1, 2], ">i4"))


def complex_array(model, request):
    return facts(np.array([1j]))


def long_double_array(model, request):
    return facts(np.array([1], np.longdouble))


def datetime_array(model, request):
    return facts(np.array(["2020-01-01"], "datetime64[D]"))


def structured_array(model, request):
    return facts(np.zeros(1, [("a", "i4")]))


def from_list(model, request):
    return made([1, 2]).name()


def from_scalar(model, request):
    return made(1.0).name()


def from_numpy_scalar(model, request):
    return made(np.float32(1)).name()


def from_nothing(model, request):
    return made(None).name()


def name_not_text(model, request):
    return pb_utils.Tensor(3, np.zeros(1, np.float32)).name()


def without_array(model, request):
    return pb_utils.Tensor("T").name()


def empty_name(model, request):
    return repr(pb_utils.Tensor("", np.zeros(1, np.float32)).name())


def dlpack_round_trip(model, request):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = pb_utils.Tensor.from_dlpack("D", made(array).to_dlpack())
    return f"{tensor.name()} {tensor.as_numpy().tolist()} {tensor.is_cpu()}"


def dlpack_into_numpy(model, request):
    return np.from_dlpack(made(np.arange(3, dtype=np.int16))).tolist()


def dlpack_out_of_numpy(model, request):
    return pb_utils.Tensor.from_dlpack("D", np.arange(3, dtype=np.uint8)).as_numpy().tolist()


def dlpack_out_of_tensor(model, request):
    return pb_utils.Tensor.from_dlpack("D", made(np.arange(3, dtype=np.float64))).as_numpy().tolist()


def dlpack_device(model, request):
    return made(np.zeros(1, np.float32)).__dlpack_device__()


def dlpack_of_strings(model, request):
    return made(np.array([b"a"], dtype=object)).to_dlpack()


def dlpack_of_booleans(model, request):
    return np.from_dlpack(made(np.array([True, False]))).tolist()


def dlpack_of_no_tensor(model, request):
    return pb_utils.Tensor.from_dlpack("D", [1, 2]).name()


def dlpack_of_a_strided_array(model, request):
    return pb_utils.Tensor.from_dlpack("D", np.arange(6, dtype=np.int32)[::2]).as_numpy().tolist()


def dlpack_capsule_used_twice(model, request):
    capsule = made(np.arange(3, dtype=np.float32)).to_dlpack()
    pb_utils.Tensor.from_dlpack("D", capsule)
    return pb_utils.Tensor.from_dlpack("E", capsule).name()


def dlpack_shares_memory(model, request):
    array = np.zeros(3, np.float32)
    tensor = pb_utils.Tensor.from_dlpack("D", array)
    array[0] = 7
    return tensor.as_numpy().tolist()


def dlpack_outlives_its_tensor(model, request):
    capsule = made(np.arange(1000, dtype=np.float64) * 2).to_dlpack()
    return float(pb_utils.Tensor.from_dlpack("D", capsule).as_numpy().sum())


def input_is_writable(model, request):
    array = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy()
    array[0] = b"changed"
    return array.flags.writeable
