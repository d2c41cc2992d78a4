"""A request or response means the same with its tensors as bytes: the helper process changes no answer."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import InferenceServerError
from naiad.request.call import CallOutput, InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BOOL, BYTES, FP32, INT64
from naiad.wire.binary_form import request_in_binary_form, response_as_parts, response_of_parts
from naiad.wire.kserve_request import decode_infer
from naiad.wire.kserve_response import encode_infer
from naiad.wire.limits import RequestLimits

LIMITS = RequestLimits(1 << 20)
DATA = {
    "FP32": st.floats(width=32, allow_nan=False),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "BOOL": st.booleans(),
    "BYTES": st.text(max_size=5),
}


@st.composite
def requests(draw):
    inputs, blobs = [], []
    for index in range(draw(st.integers(0, 3))):
        datatype = draw(st.sampled_from(sorted(DATA)))
        item = {"name": f"X{index}", "datatype": datatype}
        if draw(st.booleans()):
            item["data"] = draw(st.lists(DATA[datatype], max_size=5))
            item["shape"] = [len(item["data"])]
        else:
            blobs.append(draw(st.binary(max_size=9)))
            item |= {"shape": [1], "parameters": {"binary_data_size": len(blobs[-1])}}
        inputs.append(item)
    document = {"id": draw(st.sampled_from(["", "7"])), "inputs": inputs, "parameters": {"custom": draw(st.text(max_size=3))}}
    return json.dumps(document).encode(), b"".join(blobs)


def elements(call: InferCall) -> list:
    """Return every input with its elements as bytes."""
    seen = []
    for item in call.inputs:
        if item.array is None:
            content = bytes(item.buffer or b"")
        elif item.array.dtype.hasobject:
            content = b"".join(len(text).to_bytes(4, "little") + text for text in item.array)
        else:
            content = item.array.tobytes()
        seen.append((item.name, item.datatype, item.shape, content))
    return seen


@given(requests())
def test_a_request_says_the_same_in_both_forms(sent):
    text, blob = sent
    plain = decode_infer(text + blob, len(text), "m", "1", LIMITS)
    head, blobs = request_in_binary_form(text + blob, len(text), LIMITS)
    converted = decode_infer(head + b"".join(map(bytes, blobs)), len(head), "m", "1", LIMITS)
    assert elements(converted) == elements(plain)
    assert (converted.id, converted.parameters) == (plain.id, plain.parameters)
    assert all(item.array is None for item in converted.inputs)


@pytest.mark.parametrize(
    "text", [b"{", b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":["a"]}]}', b'{"inputs":1}']
)
def test_what_is_wrong_with_a_request_is_said_in_the_same_words(text):
    with pytest.raises(InferenceServerError) as plain:
        decode_infer(text, None, "m", "", LIMITS)
    with pytest.raises(InferenceServerError) as converted:
        request_in_binary_form(text, len(text), LIMITS)
    assert (converted.value.code, converted.value.message) == (plain.value.code, plain.value.message)


ARRAYS = st.sampled_from(
    [
        OutputTensor("A", FP32, np.array([[1.5, np.nan], [np.inf, -0.0]], np.float32)),
        OutputTensor("B", INT64, np.arange(6).reshape(2, 3)[:, ::2]),
        OutputTensor("C", BOOL, np.array([], bool).reshape(0, 4)),
        OutputTensor("D", BYTES, np.array([b"", "é".encode()], object)),
    ]
)


@given(st.lists(ARRAYS, unique_by=lambda output: output.name), st.booleans(), st.sampled_from([{}, {"p": 1.5}]))
def test_a_response_is_written_the_same_by_the_other_process(outputs, is_binary, parameters):
    response = InferResponse("m", "1", "7", outputs, parameters)
    call = InferCall(
        "m", outputs=[CallOutput(output.name, 0, is_binary) for output in outputs[:1]], binary_output=not is_binary
    )
    meta, blobs = response_as_parts(response, call)
    written = encode_infer(*response_of_parts(json.loads(json.dumps(meta)), b"".join(map(bytes, blobs))))
    plain = encode_infer(response, call)
    assert [bytes(part) for part in written.buffers] == [bytes(part) for part in plain.buffers]
    assert written.header_length == plain.header_length
