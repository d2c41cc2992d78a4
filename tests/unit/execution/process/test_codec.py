"""What one side lays into shared memory, the other reads back equal; what a worker says is never believed unchecked."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pytest
from fake_execution import Probe
from fake_host import FakeHost
from hypothesis import given
from hypothesis import strategies as st
from plans import plan, tensor

from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.execution.output_checks import OutputChecker
from naiad.execution.process.codec.decode import ResponseDecoder, failure
from naiad.execution.process.codec.encode import BatchEncoder, BlockLayout
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.request.request import Sequence
from naiad.tensor.datatype import ALL, BY_NAME
from naiad.worker.api import host
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor
from naiad.worker.batches import BlockWriter, LayoutReader, ResponseWriter, received_requests

NAMES = [datatype.name for datatype in ALL]
SIZES = st.integers(0, 5)


@pytest.fixture(autouse=True, scope="module")
def worker_side() -> None:
    """Requests tell their host when they are let go."""
    host.install(FakeHost())


def elements(draw, name: str, shape: tuple[int, ...]):
    """Return an array of any content: raw bits for numbers, an object array for BYTES."""
    count = math.prod(shape)
    if name == "BYTES":
        array = np.empty(count, object)
        array[:] = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count))
        return array.reshape(shape)
    datatype = BY_NAME[name]
    raw = draw(st.binary(min_size=count * datatype.size_bytes, max_size=count * datatype.size_bytes))
    if name == "BOOL":
        raw = bytes(byte & 1 for byte in raw)
    return np.frombuffer(raw, datatype.numpy).reshape(shape)


@st.composite
def arrays(draw, name: str, shape: tuple[int, ...]):
    """Return an array that may lie anyhow in memory."""
    array = elements(draw, name, shape)
    how = draw(st.sampled_from(["as it is", "transposed", "strided", "backwards"]))
    if how == "transposed":
        return np.asfortranarray(array)
    if how == "strided":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if how == "backwards":
        return array[..., ::-1].copy()[..., ::-1]
    return array


def same(one, other) -> bool:
    """Return whether two arrays are equal bit by bit."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tolist() == other.tolist() if one.dtype.hasobject else one.tobytes() == other.tobytes()


def encoded(model, requests) -> tuple[bytes, np.ndarray]:
    """Return the tail of a batch and its block, which held other bytes before."""
    layout = BlockLayout()
    tail = BatchEncoder(model).encode(requests, layout)
    block = np.full(layout.size, 0xA5, np.uint8)
    layout.copy_to(memoryview(block))
    return tail, block


def as_numpy(tensor_: Tensor):
    return tensor_._words() if tensor_._datatype == "BF16" else tensor_.as_numpy()


@st.composite
def batches(draw):
    """Return a plan of some inputs that are batched, and a batch of requests for it."""
    inputs = [
        tensor(f"I{index}", draw(st.sampled_from(NAMES)), [-1, -1], 8, is_optional=True)
        for index in range(draw(st.integers(1, 3)))
    ]
    requests = []
    for number in range(draw(st.integers(1, 4))):
        chosen = [item for item in inputs if draw(st.booleans())]
        shape = (draw(SIZES), draw(SIZES), draw(SIZES))
        request = Probe({item.name: draw(arrays(item.datatype.name, shape)) for item in chosen}, max(shape[0], 1)).request
        request.outputs = tuple(draw(st.lists(st.sampled_from(["Y", "Z"]), unique=True)))
        request.id = draw(st.sampled_from(["", f"r{number}", "ünï"]))
        request.parameters = draw(
            st.dictionaries(st.sampled_from("ab"), st.one_of(st.booleans(), st.integers(0, 9), st.text("xy")))
        )
        request.priority, request.timeout_us = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        request.sequence = draw(st.sampled_from([None, Sequence(7, True, False), Sequence("s", False, True)]))
        requests.append(request)
    return plan(inputs, [tensor("Y", "FP32", [1], 8), tensor("Z", "FP32", [1], 8)], 8), requests


@given(batches())
def test_a_worker_reads_what_a_request_holds(made):
    model, requests = made
    tail, block = encoded(model, requests)
    received = received_requests(1, LayoutReader().read(tail), block)
    assert len(received) == len(requests)
    for request, got in zip(requests, received):
        assert list(request.inputs) == [item.name() for item in got.inputs()]
        for item in got.inputs():
            assert same(request.inputs[item.name()], as_numpy(item))
        assert list(request.outputs) == list(got.requested_output_names())
        assert request.id == got.request_id()
        assert request.timeout_us == got.timeout()
        assert (request.sequence.id if request.sequence else 0) == got.correlation_id()


@given(st.data(), st.sampled_from(NAMES))
def test_a_tail_that_is_known_says_the_same_of_other_requests(data, name):
    model = plan([tensor("X", name, [-1], 8)], [tensor("Y", "FP32", [1], 8)], 8)
    encoder = BatchEncoder(model)
    for _ in range(3):
        shape = (data.draw(SIZES), data.draw(SIZES))
        request = Probe({"X": data.draw(arrays(name, shape))}, max(shape[0], 1)).request
        layout = BlockLayout()
        tail = encoder.encode([request], layout)
        block = np.zeros(layout.size, np.uint8)
        layout.copy_to(memoryview(block))
        (got,) = received_requests(1, LayoutReader().read(tail), block)
        assert same(request.inputs["X"], as_numpy(got.inputs()[0]))


def test_an_input_with_a_reshape_comes_in_the_models_shape():
    model = plan([tensor("X", "INT32", [2, 3], 8, reshape=[6])], [tensor("Y", "FP32", [1], 8)], 8)
    array = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    tail, block = encoded(model, [Probe({"X": array}, 2).request])
    (got,) = received_requests(1, LayoutReader().read(tail), block)
    assert same(array.reshape(2, 6), got.inputs()[0].as_numpy())


def test_large_tensors_are_copied_from_any_layout():
    model = plan([tensor("X", "FP32", [-1, -1], 8)], [tensor("Y", "FP32", [1], 8)], 8)
    array = np.arange(1 << 16, dtype=np.float32).reshape(1, 256, 256).transpose(0, 2, 1)
    tail, block = encoded(model, [Probe({"X": array}).request])
    (got,) = received_requests(1, LayoutReader().read(tail), block)
    assert same(array, got.inputs()[0].as_numpy())


# Responses.


def written(arrays_by_name, wanted) -> tuple[dict, np.ndarray]:
    """Return the message and the block of a response."""
    tensors = []
    for name, (datatype, array) in arrays_by_name.items():
        made = Tensor(name, array)
        if datatype == "BF16":
            made._datatype = "BF16"
        tensors.append(made)
    writer = BlockWriter()
    message = ResponseWriter("m", list(arrays_by_name), lambda text: None).message(InferenceResponse(tensors), wanted, writer)
    block = np.full(writer.size, 0x5A, np.uint8)
    writer.copy_to(memoryview(block))
    return orjson.loads(orjson.dumps(message)), block


def wants(*names: str, rows: int = 1):
    request = Probe(batch_size=rows).request
    request.outputs, request.id = names, "r"
    return request


@given(st.data())
def test_the_server_reads_what_a_response_holds(data):
    outputs = [
        tensor(f"O{index}", data.draw(st.sampled_from(NAMES)), [-1, -1], 8) for index in range(data.draw(st.integers(1, 3)))
    ]
    model = plan([tensor("X", "FP32", [1], 8)], outputs, 8)
    shape = (data.draw(st.integers(1, 3)), data.draw(SIZES), data.draw(SIZES))
    content = {item.name: (item.datatype.name, data.draw(arrays(item.datatype.name, shape))) for item in outputs}
    request = wants(*data.draw(st.permutations([item.name for item in outputs])), rows=shape[0])
    message, block = written(content, request.outputs)
    decoder = ResponseDecoder(model, OutputChecker(model))
    tail = orjson.dumps([message])
    for _ in range(2):  # The second time it is known.
        (known,) = decoder.read_batch(tail)
        response = decoder.response(known, request, block)
        assert not isinstance(response, InferenceServerError)
        assert (response.model_name, response.model_version, response.id) == ("m", "1", "r")
        assert request.outputs == tuple(output.name for output in response.outputs)
        for output in response.outputs:
            assert output.datatype.name == content[output.name][0]
            assert same(content[output.name][1], output.array)


def test_an_output_with_a_reshape_comes_in_the_clients_shape():
    decoder = _decoder(tensor("Y", "INT32", [2, 3], 8, reshape=[6]))
    array = np.arange(12, dtype=np.int32).reshape(2, 6)
    message, block = written({"Y": ("INT32", array)}, ["Y"])
    response = decoder.response(decoder.read_one(orjson.dumps(message)), wants("Y", rows=2), block)
    assert same(array.reshape(2, 2, 3), response.outputs[0].array)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"outputs": []}, "returned no output 'Y'"),
        ({"outputs": [["Y", "FP32", [2, 6], 0, 48]]}, "datatype"),
        ({"outputs": [["Y", "INT32", [1, 6], 0, 24]]}, "shape [1,6]"),
        ({"outputs": [["Y", "INT32", [12], 0, 48]]}, "shape [12]"),
        ({"outputs": [["Y", "INT32", [2, 7], 0, 56]]}, "shape [2,7]"),
    ],
)
def test_an_output_that_is_not_the_models_is_an_error_of_its_request(message, text):
    decoder = _decoder(tensor("Y", "INT32", [2, 3], 8, reshape=[6]))
    error = decoder.response(decoder.read_one(orjson.dumps(message)), wants("Y", rows=2), np.zeros(64, np.uint8))
    assert isinstance(error, InferenceServerError)
    assert (error.code, error.reason) == (Code.INTERNAL, FailureReason.BACKEND)
    assert text in error.message


def test_requests_that_want_other_outputs_get_them_out_of_the_same_tail():
    model = plan([tensor("X", "FP32", [1], 8)], [tensor("Y", "FP32", [-1], 8), tensor("Z", "FP32", [-1], 8)], 8)
    decoder = ResponseDecoder(model, OutputChecker(model))
    content = {"Y": ("FP32", np.ones((1, 1), np.float32)), "Z": ("FP32", np.zeros((1, 1), np.float32))}
    message, block = written(content, ["Y", "Z"])
    known = decoder.read_one(orjson.dumps(message))
    for names in (("Y",), ("Z", "Y"), ("Y",), ()):
        response = decoder.response(known, wants(*names), block)
        assert names == tuple(output.name for output in response.outputs)
    assert isinstance(decoder.response(known, wants("Y", rows=2), block), InferenceServerError)


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["Y", "FP32", "BYTES", "INTERNAL", "", "outputs"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(["a", "outputs", "error"]), inner, max_size=3)
    ),
    max_leaves=12,
)
NUMBERS = st.one_of(st.sampled_from([-1, 0, 1, 2, 8, 63, 64, 2**31, 2**63 - 1, 2**64 - 1, True, 1.0, None, "1", [1]]), JUNK)
TENSORS = st.tuples(
    st.one_of(st.just("Y"), JUNK),
    st.one_of(st.sampled_from(["FP32", "BYTES"]), JUNK),
    st.one_of(st.lists(NUMBERS, max_size=4), st.tuples(st.just(1), NUMBERS), JUNK),
    NUMBERS,
    NUMBERS,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "outputs": st.one_of(st.lists(st.one_of(TENSORS, JUNK), max_size=2), JUNK),
            "error": JUNK,
            "parameters": JUNK,
        },
    ),
    JUNK,
)


@given(MESSAGES, st.sampled_from(["FP32", "BYTES"]), st.booleans())
def test_nothing_that_a_worker_says_gets_further_than_the_decoder(message, datatype, is_batching):
    size = 8 if is_batching else 0
    model = plan([tensor("X", "FP32", [1], size)], [tensor("Y", datatype, [-1], size)], size)
    decoder = ResponseDecoder(model, OutputChecker(model))
    block = np.arange(64, dtype=np.uint8)
    request = wants("Y")
    try:
        response = decoder.response(decoder.read_one(orjson.dumps(message)), request, block)
    except BrokenWorkerError:
        return
    if isinstance(response, InferenceServerError):
        assert isinstance(response.message, str)
        return
    (output,) = response.outputs
    assert output.array.dtype == output.datatype.numpy
    assert output.array.ndim == 1 + is_batching
    assert output.datatype.name == "BYTES" or output.array.nbytes <= 64
    assert isinstance(response.parameters, dict)


@given(st.one_of(st.binary(max_size=40), MESSAGES.map(orjson.dumps)))
def test_no_tail_of_a_batch_or_a_failure_does_more_than_break_its_worker(tail):
    decoder = _decoder(tensor("Y", "FP32", [-1], 8))
    for read in (decoder.read_batch, decoder.read_one, decoder.read_batch, failure):
        try:
            made = read(tail)
        except BrokenWorkerError:
            continue
        assert made


@given(st.data())
def test_a_flipped_byte_breaks_the_worker_or_changes_only_what_is_said(data):
    content = {"Y": ("BYTES", np.array([[b"one", b"two"]], object))}
    message, block = written(content, ["Y"])
    tail = bytearray(orjson.dumps([message]))
    position = data.draw(st.integers(0, len(tail) + len(block) - 1))
    value = data.draw(st.integers(0, 255))
    if position < len(tail):
        tail[position] = value
    else:
        block[position - len(tail)] = value
    decoder = _decoder(tensor("Y", "BYTES", [-1], 8))
    try:
        for known in decoder.read_batch(bytes(tail)):
            response = decoder.response(known, wants("Y"), block)
            assert isinstance(response, InferenceServerError) or response.outputs[0].array.ndim == 2
    except BrokenWorkerError:
        pass


def _decoder(output) -> ResponseDecoder:
    model = plan([tensor("X", "FP32", [1], 8)], [output], 8)
    return ResponseDecoder(model, OutputChecker(model))
