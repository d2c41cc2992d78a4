"""Request bodies and response reading of the benchmark."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from bench.errors import BenchError
from bench.http_infer import Form, make_request, read_outputs
from hypothesis import given, settings
from hypothesis import strategies as st

ARRAYS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20).map(lambda items: np.array([items], np.int32))


def answer_like(body: bytes, header_size: int, form: Form) -> tuple[dict[str, str], bytes]:
    """Return the response of an identity server to this request: the same tensors as outputs."""
    header: dict[str, Any] = json.loads(body[:header_size])
    text = json.dumps({"model_name": "m", "outputs": header["inputs"]}).encode()
    headers = {"inference-header-content-length": str(len(text))} if form is Form.BINARY else {}
    return headers, text + body[header_size:]


@pytest.mark.parametrize("form", [Form.BINARY, Form.JSON])
@settings(deadline=None)  # a busy machine is no failure
@given(first=ARRAYS, second=ARRAYS)
def test_what_an_identity_server_sends_back_is_what_was_sent(form: Form, first: Any, second: Any) -> None:
    inputs = {"A": first, "B": second.astype(np.float32)}
    request = make_request("m", inputs, form)
    header_size = int(request.headers.get("Inference-Header-Content-Length", len(request.body)))
    outputs = read_outputs(*answer_like(request.body, header_size, form))
    assert list(outputs) == ["A", "B"]
    for name, array in inputs.items():
        assert outputs[name].dtype == array.dtype
        np.testing.assert_array_equal(outputs[name], array)


def test_a_binary_request_asks_for_binary_outputs_and_appends_the_raw_bytes() -> None:
    array = np.arange(4, dtype=np.float32).reshape(1, 4)
    request = make_request("m", {"X": array}, Form.BINARY)
    header_size = int(request.headers["Inference-Header-Content-Length"])
    assert json.loads(request.body[:header_size]) == {
        "inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}],
        "parameters": {"binary_data_output": True},
    }
    assert request.body[header_size:] == array.tobytes()
    assert request.path == "/v2/models/m/infer"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"error": "no"}',
        b'{"outputs": [{"name": "X", "datatype": "FP16", "shape": [1], "data": [1]}]}',
        b'{"outputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1]}]}',
        b'{"outputs": [{"name": "X", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}',
    ],
)
def test_a_body_that_is_no_inference_response_is_an_error(body: bytes) -> None:
    with pytest.raises(BenchError, match="not an inference response"):
        read_outputs({}, body)
