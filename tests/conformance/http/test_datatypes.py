"""Every datatype both ways, as JSON and as bytes: what goes in comes out, bit for bit."""

from __future__ import annotations

import asyncio
import json
import math

import ml_dtypes
import numpy as np
import pytest
import requests
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from http_models import CONFIG_TYPES

INTEGERS = {name: np.dtype(name.lower()) for name in CONFIG_TYPES if "INT" in name}
FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
NO_JSON = ("FP16", "BF16")


def sample(datatype: str) -> np.ndarray:
    """Return two items of three elements, with the extremes of the datatype."""
    if datatype == "BOOL":
        return np.array([[True, False, True], [False, False, True]])
    if datatype == "BYTES":
        return np.array([[b"", b"a", "\u00e9\U0001f600".encode()], [b"\0", b'"\\\n', b"x" * 1000]], np.object_)
    if datatype == "BF16":
        return np.array([[1, -2.5, 3e38], [0, -0.0, 1e-30]], ml_dtypes.bfloat16)
    if datatype in FLOATS:
        info = np.finfo(FLOATS[datatype])
        return np.array([[info.max, info.min, info.tiny], [0, -0.0, 1.5]], info.dtype)
    info = np.iinfo(INTEGERS[datatype])
    return np.array([[info.min, info.max, 0], [1, 2, info.max - 1]], info.dtype)


def make_input(datatype: str, array: np.ndarray, is_binary: bool) -> triton.InferInput:
    made = triton.InferInput("X", list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=is_binary)
    return made


def post_text(ask, datatype: str, shape: list[int], data: str) -> requests.Response:
    """Post an inference whose data is this JSON text, which Python's json need not be able to write."""
    body = f'{{"inputs":[{{"name":"X","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}'
    return ask("POST", f"/v2/models/echo_{datatype.lower()}/infer", data=body)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    if right.dtype == np.object_:
        return left.shape == right.shape and [as_bytes(item) for item in left.flat] == list(right.flat)
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


def as_bytes(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else item


@pytest.mark.parametrize("out_is_binary", [True, False], ids=["bytes-out", "json-out"])
@pytest.mark.parametrize("in_is_binary", [True, False], ids=["bytes-in", "json-in"])
@pytest.mark.parametrize("datatype", [name for name in CONFIG_TYPES if name not in NO_JSON])
def test_each_datatype_comes_back_from_each_form_to_each_form(client, datatype, in_is_binary, out_is_binary):
    array = sample(datatype)
    wanted = [triton.InferRequestedOutput("Y", binary_data=out_is_binary)]
    result = client.infer(f"echo_{datatype.lower()}", [make_input(datatype, array, in_is_binary)], outputs=wanted)
    assert result.get_output("Y")["datatype"] == datatype
    assert same(result.as_numpy("Y"), array)


@pytest.mark.parametrize("datatype", NO_JSON)
def test_half_precision_comes_back_as_bytes(client, datatype):
    array = sample(datatype)
    result = client.infer(f"echo_{datatype.lower()}", [make_input(datatype, array, True)])
    assert same(result.as_numpy("Y"), array)


@pytest.mark.parametrize("datatype", NO_JSON)
def test_half_precision_in_json_is_refused_and_told_how(refused, datatype):
    text = refused(f"echo_{datatype.lower()}", [1.0], datatype=datatype)
    assert f"receiving {datatype} data via JSON is not supported" in text
    assert "'X'" in text
    assert "binary" in text


@pytest.mark.parametrize("datatype", NO_JSON)
def test_half_precision_asked_for_as_json_is_refused_and_told_how(ask, error, datatype):
    item = {"name": "X", "shape": [1, 1], "datatype": datatype, "parameters": {"binary_data_size": 2}}
    head = json.dumps({"inputs": [item]}).encode()
    response = ask(
        "POST",
        f"/v2/models/echo_{datatype.lower()}/infer",
        data=head + b"\0\0",
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert f"sending {datatype} data via JSON is not supported" in error(response)


@pytest.mark.parametrize(
    ("datatype", "is_binary"), [(name, form) for name in CONFIG_TYPES for form in (True, False) if form or name not in NO_JSON]
)
def test_a_shape_with_a_zero_is_an_empty_tensor(client, datatype, is_binary):
    array = np.zeros((2, 0), sample(datatype).dtype)
    wanted = [triton.InferRequestedOutput("Y", binary_data=is_binary)]
    result = client.infer(f"echo_{datatype.lower()}", [make_input(datatype, array, is_binary)], outputs=wanted)
    output = result.get_output("Y")
    assert output["shape"] == [2, 0]
    assert output.get("data", []) == []
    assert output.get("parameters", {}).get("binary_data_size", 0) == 0


def test_a_response_whose_binary_outputs_are_all_empty_is_json(ask):
    item = {"name": "X", "shape": [1, 0], "datatype": "FP32", "data": []}
    body = {"inputs": [item], "outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}
    response = ask("POST", "/v2/models/echo/infer", body)
    assert response.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in response.headers
    assert response.json()["outputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf"])
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_non_finite_literals_are_read_and_written_unquoted(ask, datatype, literal):
    response = post_text(ask, datatype, [1, 2], f"[{literal},1.5]")
    written = literal.replace("Inf", "Infinity") if literal.endswith("Inf") else literal
    assert f'"data":[{written},1.5]' in response.text
    found = response.json()["outputs"][0]["data"][0]
    assert math.isnan(found) if written == "NaN" else found == float(written)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_every_bit_of_a_nan_survives_as_bytes(client, ask, datatype):
    raw = {"FP16": b"\x01\x7e", "BF16": b"\xc1\x7f", "FP32": b"\1\2\xc0\x7f", "FP64": b"\1\2\3\4\5\6\xf8\xff"}[datatype]
    item = {"name": "X", "shape": [1, 1], "datatype": datatype, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    response = ask(
        "POST",
        f"/v2/models/echo_{datatype.lower()}/infer",
        data=head + raw,
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert response.status_code == 200, response.text
    assert response.content[int(response.headers["inference-header-content-length"]) :] == raw


@pytest.mark.parametrize(
    ("datatype", "value", "shown"),
    [
        ("BOOL", 1, "number 1"),
        ("BOOL", "true", "string 'true'"),
        ("INT32", 1.0, "number 1.0"),
        ("INT32", True, "boolean true"),
        ("INT32", "1", "string '1'"),
        ("INT8", 128, "number 128"),
        ("INT8", -129, "number -129"),
        ("UINT8", 256, "number 256"),
        ("UINT8", -1, "number -1"),
        ("UINT16", 65536, "number 65536"),
        ("INT64", 2**63, f"number {2**63}"),
        ("UINT64", -1, "number -1"),
        ("FP32", True, "boolean true"),
        ("FP32", "1.0", "string '1.0'"),
        ("FP32", None, "null"),
        ("FP32", {}, "object of 0 member(s)"),
        ("FP32", 1e39, "number 1e+39"),
        ("BYTES", 1, "number 1"),
        ("BYTES", None, "null"),
        ("BYTES", True, "boolean true"),
    ],
)
def test_an_element_of_another_type_or_out_of_range_is_refused_with_its_place(refused, datatype, value, shown):
    good = {"BOOL": True, "BYTES": "a"}.get(datatype, 1)
    text = refused(f"echo_{datatype.lower()}", [good, value], datatype=datatype)
    assert "element 1 of the data of input 'X'" in text
    assert shown in text


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_floats_take_any_json_number(infer, datatype):
    response = infer(f"echo_{datatype.lower()}", [1, -2, 2.5, 1e3], datatype=datatype)
    assert response.json()["outputs"][0]["data"] == [1.0, -2.0, 2.5, 1000.0]


def test_an_unknown_datatype_is_refused_by_name(refused):
    assert "invalid datatype for input X: 'FLOAT'" in refused("echo", [1.0], datatype="FLOAT")


def test_booleans_are_one_byte_each(client):
    result = client.infer("echo_bool", [make_input("BOOL", np.array([[True, False]]), True)])
    assert result.get_output("Y")["parameters"] == {"binary_data_size": 2}


def test_strings_that_are_not_utf8_need_the_binary_form(client):
    texts = [b"good", b"\xff\xfe\0"]
    made = make_input("BYTES", np.array([texts], np.object_), True)
    assert list(client.infer("echo_bytes", [made]).as_numpy("Y")[0]) == texts
    with pytest.raises(Exception, match="element 1 of output 'Y' is not valid UTF-8"):
        client.infer("echo_bytes", [made], outputs=[triton.InferRequestedOutput("Y", binary_data=False)])


# Nested arrays: read in order, whatever the nesting, for every datatype alike.
NESTED = [("flat", "[{0},{1}]"), ("column", "[[{0}],[{1}]]"), ("row", "[[{0},{1}]]"), ("deep", "[[[{0}]],[[{1}]]]")]
VALUES = {"BOOL": ("true", "false"), "BYTES": ('"a"', '"b"'), "FP32": ("0.5", "2.0"), "UINT64": ("1", "18446744073709551615")}


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize(("nesting", "form"), NESTED, ids=[name for name, _ in NESTED])
def test_nested_data_is_flattened_in_order(ask, datatype, nesting, form):
    output = post_text(ask, datatype, [2, 1], form.format(*VALUES[datatype])).json()["outputs"][0]
    assert output["shape"] == [2, 1]
    assert output["data"] == [json.loads(value) for value in VALUES[datatype]]


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize(("form", "count"), [("[{0}]", 1), ("[{0},{1},{0}]", 3), ("[[{0}],{1},[{0},{1}]]", 4), ("[]", 0)])
def test_a_wrong_count_of_elements_names_input_expected_and_found(ask, error, datatype, form, count):
    text = error(post_text(ask, datatype, [2, 1], form.format(*VALUES[datatype])))
    assert "input 'X'" in text
    assert f"takes 2 elements, got {count}" in text


@pytest.mark.parametrize("data", ["ab", 1, True, None, {"a": 1}])
def test_data_that_is_no_array_is_refused(refused, data):
    assert "the data of input 'X' must be an array" in refused("echo_bytes", data, datatype="BYTES")


@pytest.mark.parametrize("depth", [100, 101])
def test_data_may_be_nested_100_deep(infer, error, depth):
    data: object = 1.0
    for _ in range(depth):
        data = [data]
    response = infer("echo", data, shape=[1, 1])
    if depth == 100:
        assert response.json()["outputs"][0]["data"] == [1.0]
    else:
        assert "more than 100" in error(response)


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0b", "\U0001f600", "x" * (900 << 10), '"\\/\b\t'],
    ids=["empty", "NUL", "NUL-inside", "emoji", "900-KiB", "escapes"],
)
def test_strings_come_back_byte_for_byte(infer, text):
    assert infer("echo_bytes", [text], datatype="BYTES").json()["outputs"][0]["data"] == [text]


def test_the_asynchronous_client_gets_the_same(server):
    async def ask() -> list[np.ndarray]:
        async with triton_aio.InferenceServerClient(server.http) as client:
            calls = [client.infer(f"echo_{name.lower()}", [make_input(name, sample(name), True)]) for name in CONFIG_TYPES]
            return [result.as_numpy("Y") for result in await asyncio.gather(*calls)]

    for name, found in zip(CONFIG_TYPES, asyncio.run(ask())):
        assert same(found, sample(name)), name
