"""Answers KIND = a name of ARRAYS with that array, in the output OUT: L strings, F FP32, I INT32, B BOOL, D BF16."""

import numpy as np
import triton_python_backend_utils as pb_utils

ARRAYS = {
    "unicode": np.array(["setosa", "virginica"]),
    "fixed_bytes": np.array([b"setosa", b"virginica"]),
    "mixed": np.array(["setosa", b"virginica"], dtype=object),
    "not_ascii": np.array(["é", "", "日本"]),
    "no_elements": np.array([], dtype="<U1"),
    "zero_dimensions": np.array("x"),
    "none": np.array([1, None], dtype=object),
    "numbers": np.array([1, 2.5, True], dtype=object),
    "nested": np.array([b"a", [1]], dtype=object),
    "fixed_bytes_with_zeros": np.array([b"a\0b", b"c\0"]),
    "object_with_zeros": np.array([b"a\0b", b"c\0"], dtype=object),
    "half_a_pair": np.array(["\ud800"], dtype=object),
    "float32": np.array([1.5, -2], np.float32),
    "float64": np.array([1.0], np.float64),
    "float16": np.array([1.0], np.float16),
    "int32": np.array([1, -2], np.int32),
    "int64": np.array([1], np.int64),
    "uint32": np.array([1], np.uint32),
    "int8": np.array([1], np.int8),
    "bool": np.array([True, False]),
    "complex": np.array([1j]),
    "datetime": np.array(["2020-01-01"], "datetime64[D]"),
    "structured": np.zeros(1, [("a", "i4")]),
    "longdouble": np.array([1], np.longdouble),
    "big_endian": np.array([1, -2], ">i4"),
    "strided": np.arange(6, dtype=np.int32)[::3],
    "reversed": np.arange(3, dtype=np.float32)[::-1],
    "broadcast": np.broadcast_to(np.float32(3), (3,)),
    "read_only": np.frombuffer(np.float32(4).tobytes(), np.float32),
    "masked": np.ma.masked_array(np.zeros(2, np.float32), [True, False]),
    "not_finite": np.array([np.nan, np.inf, -np.inf], np.float32),
    "strings_for_numbers": np.array(["1.5"]),
    "numbers_for_strings": np.array([1.5], np.float32),
}


class SaysArray:
    """An array that only says so."""

    def __array__(self, dtype=None, copy=None):
        return np.zeros(1, np.float32)


OTHERS = {"list": [1.0], "float": 1.0, "none_at_all": None, "bytes": b"x", "says_array": SaysArray()}


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        kind, output = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0].decode() for name in ("KIND", "OUT"))
        array = ARRAYS[kind] if kind in ARRAYS else OTHERS[kind]
        return pb_utils.InferenceResponse([pb_utils.Tensor(output, array)])
