"""What is remembered between requests changes no answer: with and without it, calls and bodies are equal."""

import json
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import InferenceServerError
from naiad.request.call import InferCall
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BYTES, FP32, INT8
from naiad.wire.call_templates import CallTemplates
from naiad.wire.kserve_request import decode_infer
from naiad.wire.kserve_response import ResponseTemplates, encode_infer
from naiad.wire.limits import RequestLimits

LIMITS = RequestLimits(1 << 20)
NAMES = st.sampled_from(["A", "B", "é"])
PARAMETERS = st.dictionaries(
    st.sampled_from(["priority", "binary_data_output", "custom", "sequence_id"]), st.sampled_from([0, 1, True, "x"])
)


@st.composite
def requests(draw):
    inputs, blobs = [], []
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        size = draw(st.integers(0, 6))
        blobs.append(draw(st.binary(min_size=size, max_size=size)))
        inputs.append({"name": name, "shape": [size], "datatype": "INT8", "parameters": {"binary_data_size": size}})
    document = {"inputs": inputs, "parameters": draw(PARAMETERS)}
    if draw(st.booleans()):
        document["outputs"] = [{"name": "Y", "parameters": {"binary_data": draw(st.booleans())}}]
    if draw(st.booleans()):
        document["id"] = draw(st.sampled_from(["", "1"]))
    text = json.dumps(document).encode()
    # Now and then the body is longer or shorter than its JSON part says.
    blob = b"".join(blobs)
    return text, draw(st.sampled_from([blob, blob, blob, blob[:-1], blob + b"!"]))


def seen(text: bytes, blob: bytes, templates: CallTemplates | None):
    """Return all that a call says, or the error's text."""
    try:
        call = decode_infer(text + blob, len(text), "m", "1", LIMITS, templates)
    except InferenceServerError as error:
        return error.code, error.message
    fields = {name: getattr(call, name) for name in InferCall.__slots__ if name not in ("inputs", "template")}
    return fields, [(item.name, item.datatype, item.shape, bytes(item.buffer)) for item in call.inputs]


@given(st.lists(requests(), min_size=1, max_size=8))
def test_a_remembered_call_is_the_call_that_would_be_read(sent):
    templates = CallTemplates()
    for text, blob in [*sent, *sent]:
        assert seen(text, blob, templates) == seen(text, blob, None)


def test_a_text_that_comes_again_has_one_template_and_those_with_an_id_or_a_sequence_have_none():
    templates = CallTemplates()
    item = {"name": "A", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": 1}}
    plain = json.dumps({"inputs": [item]}).encode()
    calls = [decode_infer(plain + byte, len(plain), "m", "", LIMITS, templates) for byte in (b"a", b"b", b"c")]
    assert calls[0].template is None
    assert calls[1].template is calls[2].template is not None
    assert bytes(calls[2].inputs[0].buffer) == b"c"
    for more in ({"id": "7"}, {"parameters": {"sequence_id": 7}}, {"parameters": {"sequence_id": "seven"}}):
        text = json.dumps({**more, "inputs": [item]}).encode()
        again = [decode_infer(text + b"a", len(text), "m", "", LIMITS, templates) for _ in range(2)]
        assert [call.template for call in again] == [None, None]


def test_a_remembered_text_does_not_keep_the_body_alive():
    templates = CallTemplates()
    item = {"name": "A", "shape": [64], "datatype": "INT8", "parameters": {"binary_data_size": 64}}
    text = json.dumps({"inputs": [item]}).encode()
    body = np.frombuffer(text + bytes(64), np.uint8).copy()
    decode_infer(body.data, len(text), "m", "", LIMITS, templates)
    alive = weakref.ref(body)
    del body
    assert alive() is None


@st.composite
def responses(draw):
    outputs = []
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        datatype = draw(st.sampled_from([FP32, INT8, BYTES]))
        shape = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=2)))
        array = np.full(shape, b"x" * draw(st.integers(0, 3)), object) if datatype is BYTES else np.ones(shape, datatype.numpy)
        outputs.append(OutputTensor(name, datatype, array))
    parameters = draw(st.sampled_from([{}, {"p": 1}, {"p": 2}]))
    return InferResponse(draw(st.sampled_from(["m", "n"])), "1", draw(st.sampled_from(["", "7"])), outputs, parameters)


@given(st.lists(responses(), min_size=1, max_size=8), st.booleans())
def test_a_remembered_body_is_the_body_that_would_be_written(answers, binary_output):
    templates = CallTemplates()
    item = {"name": "A", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": 1}}
    text = json.dumps({"inputs": [item], "parameters": {"binary_data_output": binary_output}}).encode()
    body = text + b"a"
    call = [decode_infer(body, len(text), "m", "", LIMITS, templates) for _ in range(2)][1]
    assert call.template is not None
    known = ResponseTemplates()
    for answer in [*answers, *answers]:
        plain, remembered = encode_infer(answer, call), encode_infer(answer, call, known)
        assert [bytes(part) for part in plain.buffers] == [bytes(part) for part in remembered.buffers]
        assert plain.header_length == remembered.header_length
