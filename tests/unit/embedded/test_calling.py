"""How a function is called and which of its results are taken."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from naiad import Tensor
from naiad.backends.base import SingleRequest
from naiad.errors import Code, InferenceServerError
from naiad.server.embedded.calling import FunctionCaller, check_wanted
from naiad.server.embedded.declaration import declare

A, B = Tensor("a", "INT32", (-1,)), Tensor("b", "INT32", (-1,))
S, D = Tensor("s", "INT32", (-1,)), Tensor("d", "INT32", (-1,))
ONE = np.ones((1, 2), np.int32)


def caller(function, inputs=(A, B), outputs=(S,), **more) -> FunctionCaller:
    return FunctionCaller(function, declare(inputs, outputs, **more))


def refusal(function, **more) -> str:
    with pytest.raises(InferenceServerError) as raised:
        caller(function, **more)
    assert raised.value.code is Code.INVALID_ARGUMENT
    return raised.value.message


class Adder:
    def __call__(self, a, b):
        return a + b


KEYWORD = {
    "by name": lambda a, b: a + b,
    "in another order": lambda b, a: a + b,
    "keyword only": eval("lambda *, a, b: a + b"),
    "all keywords": lambda **inputs: inputs["a"] + inputs["b"],
    "with a default besides": lambda a, b, c=0: a + b + c,
    "object": Adder(),
    "partial": functools.partial(lambda c, a, b: a + b, 0),
}


@pytest.mark.parametrize("function", KEYWORD.values(), ids=KEYWORD)
def test_a_function_with_the_inputs_as_parameters_gets_them_by_name(function):
    assert caller(function).call({"a": ONE, "b": ONE})["s"].tolist() == [[2, 2]]


@pytest.mark.parametrize("function", [lambda inputs: inputs["a"], lambda inputs, k=1: inputs["a"] * k])
def test_a_function_with_one_other_parameter_gets_a_dict(function):
    assert caller(function).call({"a": ONE, "b": ONE})["s"].tolist() == [[1, 1]]


def test_a_parameter_called_as_the_only_input_gets_the_array():
    assert caller(lambda a: a, inputs=(A,)).call({"a": ONE})["s"].tolist() == [[1, 1]]


def test_names_that_are_no_python_names_come_in_a_dict():
    made = caller(lambda inputs: inputs["a:0"], inputs=(Tensor("a:0", "INT32", (-1,)),))
    assert made.call({"a:0": ONE})["s"].tolist() == [[1, 1]]


def test_a_function_that_takes_neither_is_refused_with_both():
    text = refusal(lambda a, c: a + c)
    assert "its parameters (a, c) don't fit its inputs (a, b)" in text


def test_a_function_without_parameters_is_refused():
    assert "don't fit" in refusal(lambda: ONE)


def test_the_parameter_of_an_optional_input_needs_a_default():
    optional = Tensor("b", "INT32", (-1,), is_optional=True)
    assert "input 'b' is optional, so its parameter needs a default" in refusal(lambda a, b: a, inputs=(A, optional))
    assert caller(lambda a, b=None: a, inputs=(A, optional)).call({"a": ONE})["s"] is not None


def generator(a, b):
    yield a


async def asynchronous(a, b):
    return a


async def asynchronous_generator(a, b):
    yield a


class GeneratorObject:
    def __call__(self, a, b):
        yield a


@pytest.mark.parametrize("function", [generator, asynchronous_generator, GeneratorObject(), asynchronous])
def test_what_answers_otherwise_than_by_returning_is_refused(function):
    assert "can't be served as a function" in refusal(function)


def test_what_is_no_function_is_refused():
    assert "it is no function" in refusal(3)


def test_what_hides_its_parameters_is_refused():
    assert "parameters can't be read" in refusal(max)


RESULTS = {
    "dict": lambda a, b: {"d": a - b, "s": a + b},
    "tuple": lambda a, b: (a + b, a - b),
    "list": lambda a, b: [a + b, a - b],
}


@pytest.mark.parametrize("function", RESULTS.values(), ids=RESULTS)
def test_results_are_taken_by_name_or_in_order(function):
    result = caller(function, outputs=(S, D)).call({"a": ONE, "b": ONE})
    assert {name: array.tolist() for name, array in result.items()} == {"s": [[2, 2]], "d": [[0, 0]]}


WRONG = {
    "another name": (lambda a, b: {"z": a}, "returned output 'z', its outputs are: s, d"),
    "too few": (lambda a, b: (a,), "returned 1 values, must be 2: s, d"),
    "too many": (lambda a, b: (a, a, a), "returned 3 values, must be 2: s, d"),
    "one array for two": (lambda a, b: a, "returned a ndarray, must be a dict or a tuple of arrays: s, d"),
    "None": (lambda a, b: None, "returned a NoneType, must be a dict or a tuple of arrays: s, d"),
}


@pytest.mark.parametrize(("function", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_result_is_named(function, text):
    with pytest.raises(InferenceServerError, match=text) as raised:
        caller(function, outputs=(S, D)).call({"a": ONE, "b": ONE})
    assert raised.value.code is Code.INTERNAL


def test_a_wanted_output_that_is_missing_is_named():
    with pytest.raises(InferenceServerError, match="returned no output 'd', it returned: s"):
        check_wanted({"s": ONE}, ["s", "d"])


def test_inputs_can_not_be_written_to():
    def write(a, b):
        a += 1

    with pytest.raises(ValueError, match="read-only"):
        caller(write).call({"a": ONE, "b": ONE})


def test_strings_of_any_kind_become_bytes():
    words = Tensor("w", bytes, (-1,))
    for array in (np.array(["ä"]), np.array(["ä".encode()]), np.array(["ä"], object)):
        made = caller(lambda a, array=array: array, inputs=(A,), outputs=(words,))
        assert made.call({"a": ONE})["w"].tolist() == ["ä".encode()]


def test_an_element_that_is_no_string_is_the_models_fault():
    words = Tensor("w", bytes, (-1,))
    with pytest.raises(InferenceServerError, match="output 'w': element 0 is a NoneType") as raised:
        caller(lambda a: np.array([None], object), inputs=(A,), outputs=(words,)).call({"a": ONE})
    assert raised.value.code is Code.INTERNAL


def test_bfloat16_is_seen_as_such_and_given_as_bits():
    x, y = Tensor("x", ml_dtypes.bfloat16, (-1,)), Tensor("y", "BF16", (-1,))
    bits = np.array([[1.5]], ml_dtypes.bfloat16).view(np.uint16)
    seen = []
    made = caller(lambda x: seen.append(x) or x * 2, inputs=(x,), outputs=(y,))
    result = made.call({"x": bits})["y"]
    assert seen[0].dtype == ml_dtypes.bfloat16
    assert (result.dtype, result.view(ml_dtypes.bfloat16).tolist()) == (np.uint16, [[3.0]])


def test_a_list_of_requests_has_a_result_for_each():
    made = caller(
        lambda requests: [{"s": item.inputs["a"] * item.parameters["k"]} for item in requests],
        inputs=(A,),
        takes_requests=True,
    )
    results = made.call_requests([SingleRequest({"a": ONE}, ("s",), {"k": number}) for number in (2, 3)])
    assert [result["s"].tolist() for result in results] == [[[2, 2]], [[3, 3]]]


@pytest.mark.parametrize(
    ("result", "text"), [([], "returned 0 results for 1 requests"), ({}, "returned a dict, must be a list")]
)
def test_another_number_of_results_is_refused(result, text):
    made = caller(lambda requests: result, inputs=(A,), takes_requests=True)
    with pytest.raises(InferenceServerError, match=text):
        made.call_requests([SingleRequest({"a": ONE})])
