"""Every rule that a call must keep, with the words that existing clients match."""

import numpy as np
import pytest
from plans import plan, tensor

from naiad.core.validate import CallValidator
from naiad.errors import Code, InferenceServerError
from naiad.request.call import CallInput, CallOutput, InferCall
from naiad.tensor import bytes_tensor

TWO = CallValidator(
    plan(
        [tensor("A", "FP32", [2], 4), tensor("B", "INT32", [-1], 4)],
        [tensor("Y", "FP32", [2], 4), tensor("Z", "FP32", [2], 4)],
        4,
    )
)
STRINGS = CallValidator(plan([tensor("S", "BYTES", [-1])], [tensor("Y", "BYTES", [-1])]))


def a(shape=(1, 2), **more) -> CallInput:
    return CallInput("A", more.pop("datatype", "FP32"), list(shape), buffer=bytes(4 * int(np.prod(shape))), **more)


def b(shape=(1, 3)) -> CallInput:
    return CallInput("B", "INT32", list(shape), array=np.zeros(int(np.prod(shape)), np.int32))


def call(*inputs: CallInput, **more) -> InferCall:
    return InferCall("m", inputs=list(inputs), **more)


def refusal(validator: CallValidator, asked: InferCall) -> str:
    with pytest.raises(InferenceServerError) as caught:
        validator.check(asked)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_a_good_call_gives_views_all_outputs_and_the_batch_size():
    checked = TWO.check(call(a((3, 2)), b((3, 5))))
    assert (checked.outputs, checked.batch_size) == (("Y", "Z"), 3)
    assert {name: array.shape for name, array in checked.inputs.items()} == {"A": (3, 2), "B": (3, 5)}


def test_binary_inputs_are_not_copied():
    item = a()
    assert np.shares_memory(TWO.check(call(item, b())).inputs["A"], np.frombuffer(item.buffer, np.uint8))


def test_requested_outputs_keep_their_order_and_come_once():
    checked = TWO.check(call(a(), b(), outputs=[CallOutput("Z"), CallOutput("Y"), CallOutput("Z")]))
    assert checked.outputs == ("Z", "Y")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (call(a(), a()), ["input 'A' already exists in request"]),
        (call(a(), b(), outputs=[CallOutput("Q")]), ["unexpected inference output 'Q' for model 'm'"]),
        (
            call(a()),
            ["expected 2 inputs but got 1 inputs for model 'm'", "Got input(s) ['A']", "missing required input(s) ['B']"],
        ),
        (call(), ["expected 2 inputs but got 0 inputs"]),
        (call(a(), b(), CallInput("C", "FP32", [1])), ["expected 2 inputs but got 3 inputs"]),
        (call(a(), CallInput("C", "FP32", [1])), ["unexpected inference input 'C' for model 'm'"]),
        (call(a(()), b()), ["input 'A' has no shape but model requires batch dimension for 'm'"]),
        (call(a((2, 2)), b((1, 3))), ["input 'B' batch size does not match other inputs for 'm'"]),
        (call(a((5, 2)), b((5, 3))), ["inference request batch-size must be <= 4 for 'm'", "exceeds max_batch_size 4"]),
        (
            call(a(datatype="FP64"), b()),
            ["inference input 'A' data-type is 'FP64', but model 'm' expects 'FP32'", "numpy dtype float32"],
        ),
        (call(a((1, 3)), b()), ["unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]"]),
        (call(a((0, 2)), b((0, 3))), ["unexpected shape for input 'A'", "batch dimension must be 1 or more"]),
        (
            call(CallInput("A", "FP32", [1, 2], buffer=bytes(7)), b()),
            ["input byte size mismatch for input 'A' for model 'm'. Expected 8, got 7"],
        ),
        (
            call(a(), CallInput("B", "INT32", [1, 3], array=np.zeros(2, np.int32))),
            ["input 'B' for model 'm'", "takes 3 elements, got 2"],
        ),
        (call(b()), ["missing required input(s) ['A']"]),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(asked, words):
    message = refusal(TWO, asked)
    assert all(word in message for word in words), message
    assert message.startswith("[request id: <id_unknown>] ")


def test_the_request_id_is_in_the_message():
    assert refusal(TWO, call(a(), id="7")).startswith("[request id: 7] ")


def test_ten_thousand_inputs_give_a_short_message():
    asked = call(*(CallInput(f"n{index}", "FP32", [1]) for index in range(10_000)))
    assert len(refusal(TWO, asked)) < 2000


@pytest.mark.parametrize("shape", [[1, 2**63 - 1], [1, 2**64], [2**32, 2**32], [1, 2**70]])
def test_a_huge_shape_is_refused_by_arithmetic(shape):
    assert "'B'" in refusal(TWO, call(a((1, 2)), CallInput("B", "INT32", shape, array=np.zeros(2, np.int32))))


def test_a_zero_beside_a_size_beyond_numpy_is_refused():
    validator = CallValidator(plan([tensor("X", "FP32", [-1, -1])], [tensor("Y", "FP32", [-1, -1])]))
    message = refusal(validator, call(CallInput("X", "FP32", [0, 2**70], buffer=b"")))
    assert "'X'" in message
    assert "too large" in message


def test_an_empty_tensor_is_legal():
    checked = TWO.check(call(a(), CallInput("B", "INT32", [1, 0], buffer=b"")))
    assert checked.inputs["B"].shape == (1, 0)


def test_an_optional_input_may_be_left_out_and_a_required_one_may_not():
    validator = CallValidator(
        plan([tensor("A", "FP32", [1]), tensor("B", "FP32", [1], is_optional=True)], [tensor("Y", "FP32", [1])])
    )
    one = CallInput("A", "FP32", [1], buffer=bytes(4))
    assert list(validator.check(call(one)).inputs) == ["A"]
    message = refusal(validator, call(CallInput("B", "FP32", [1], buffer=bytes(4))))
    assert "missing required input(s) ['A']" in message
    assert "expected number of inputs between 1 and 2 but got 1 inputs" in message


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (bytes_tensor.encode([b"a"]), "expected 2 string elements"),
        (bytes_tensor.encode([b"a", b"b", b"c"]), "unexpected number of string elements"),
        (bytes_tensor.encode([b"a", b"b"])[:-1], "incomplete string data"),
        (bytes_tensor.encode([b"a", b"b"]) + b"\1", "incomplete string length indicator"),
        (bytes_tensor.encode([b"a"]) + b"\1\0", "incomplete string length indicator"),
    ],
)
def test_a_bytes_tensor_must_hold_as_many_elements_as_its_shape(buffer, words):
    assert words in refusal(STRINGS, call(CallInput("S", "BYTES", [2], buffer=buffer)))


def test_bytes_elements_arrive_byte_for_byte():
    elements = [b"", b"\0", "é".encode(), b"\xff\xfe"]
    checked = STRINGS.check(call(CallInput("S", "BYTES", [4], buffer=bytes_tensor.encode(elements))))
    assert checked.inputs["S"].tolist() == elements


class TestRawBinary:
    """The whole body is the one input: the model tells its name, datatype and shape."""

    def check(self, dims, body, datatype="FP32", max_batch_size=0):
        inputs = [tensor("X", datatype, dims, max_batch_size)]
        validator = CallValidator(plan(inputs, [tensor("Y", datatype, dims, max_batch_size)], max_batch_size))
        return validator.check(call(raw_buffer=body)).inputs["X"]

    def test_a_variable_dim_takes_the_rest(self):
        assert self.check([2, -1], bytes(24)).shape == (2, 3)

    def test_a_batching_model_gets_one_item(self):
        assert self.check([2], bytes(8), max_batch_size=4).shape == (1, 2)

    def test_bytes_are_one_element(self):
        assert self.check([1], b"hello", "BYTES").tolist() == [b"hello"]

    def test_a_size_that_does_not_fit_is_refused(self):
        with pytest.raises(InferenceServerError, match="7 bytes"):
            self.check([2, -1], bytes(7))

    def test_a_model_with_two_inputs_cannot_take_one(self):
        assert "exactly 1 input" in refusal(TWO, call(raw_buffer=b""))

    def test_two_variable_dims_cannot_be_told(self):
        with pytest.raises(InferenceServerError, match="one variable dimension"):
            self.check([-1, -1], bytes(8))
