"""What an inference request may say: its JSON members, parameters, requested outputs and binary section."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import tritonclient.http as triton

X = {"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}
BLOB = struct.pack("<2f", 1, 2)
BINARY_X = {"name": "X", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}


@pytest.fixture
def post(ask):
    """Post a JSON part and, behind it, a binary section with the header that tells where it begins."""

    def send(document, blob=b"", model="echo", **headers):
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        lines = {"Inference-Header-Content-Length": str(len(text))} if blob else {}
        lines.update({name.replace("_", "-"): value for name, value in headers.items()})
        return ask("POST", f"/v2/models/{model}/infer", data=text + blob, headers=lines)

    return send


# --- the response


def test_members_of_the_response_are_in_their_order(post):
    response = post({"id": "7", "inputs": [X]})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == {
        "id": "7",
        "model_name": "echo",
        "model_version": "1",
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
    }
    assert list(response.json()) == ["id", "model_name", "model_version", "outputs"]
    assert list(response.json()["outputs"][0]) == ["name", "datatype", "shape", "data"]


@pytest.mark.parametrize("request_id", ["x", "\u00e9\U0001f600", 'a b\t"\\', "0" * 1000])
def test_the_id_comes_back(post, request_id):
    assert post({"id": request_id, "inputs": [X]}).json()["id"] == request_id


@pytest.mark.parametrize("document", [{"inputs": [X]}, {"id": "", "inputs": [X]}])
def test_without_an_id_there_is_none_in_the_response(post, document):
    assert "id" not in post(document).json()


def test_data_of_the_response_is_flat(post):
    item = {**X, "shape": [2, 2], "data": [[1, 2], [3, 4]]}
    output = post({"inputs": [item]}).json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([2, 2], [1.0, 2.0, 3.0, 4.0])


def test_a_binary_response_tells_where_its_tensors_begin(post):
    response = post({"inputs": [X], "parameters": {"binary_data_output": True}})
    assert response.headers["content-type"] == "application/octet-stream"
    length = int(response.headers["inference-header-content-length"])
    output = json.loads(response.content[:length])["outputs"][0]
    assert output == {"name": "Y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    assert response.content[length:] == BLOB


# --- requested outputs

AB = [
    {"name": "A", "shape": [1, 1], "datatype": "FP32", "data": [1.5]},
    {"name": "B", "shape": [1, 1], "datatype": "INT32", "data": [7]},
]


@pytest.mark.parametrize("outputs", [None, []])
def test_without_requested_outputs_all_come_in_the_models_order(post, outputs):
    document = {"inputs": AB} if outputs is None else {"inputs": AB, "outputs": outputs}
    assert [output["name"] for output in post(document, model="two").json()["outputs"]] == ["YA", "YB"]


def test_only_requested_outputs_come(post):
    document = {"inputs": AB, "outputs": [{"name": "YB"}]}
    assert [output["name"] for output in post(document, model="two").json()["outputs"]] == ["YB"]


def test_binary_data_output_is_the_default_of_outputs_that_are_not_listed(post):
    listed = {"inputs": AB, "outputs": [{"name": "YA"}, {"name": "YB"}], "parameters": {"binary_data_output": True}}
    assert all("data" in output for output in post(listed, model="two").json()["outputs"])


def test_each_listed_output_has_a_form_of_its_own(post):
    document = {"inputs": AB, "outputs": [{"name": "YA", "parameters": {"binary_data": True}}, {"name": "YB"}]}
    response = post(document, model="two")
    length = int(response.headers["inference-header-content-length"])
    first, second = json.loads(response.content[:length])["outputs"]
    assert (first["name"], first["parameters"]) == ("YA", {"binary_data_size": 4})
    assert (second["name"], second["data"]) == ("YB", [7])
    assert response.content[length:] == struct.pack("<f", 1.5)


def test_an_unknown_output_is_refused_by_name(post, error):
    assert "unexpected inference output 'Z' for model 'echo'" in error(post({"inputs": [X], "outputs": [{"name": "Z"}]}))


def test_tritonclient_mixes_both_forms_both_ways(client):
    a, b = triton.InferInput("A", [1, 2], "FP32"), triton.InferInput("B", [1, 3], "INT32")
    a.set_data_from_numpy(np.array([[1, 2]], np.float32), binary_data=True)
    b.set_data_from_numpy(np.array([[1, 2, 3]], np.int32), binary_data=False)
    wanted = [triton.InferRequestedOutput("YA", binary_data=False), triton.InferRequestedOutput("YB", binary_data=True)]
    result = client.infer("two", [b, a], outputs=wanted, request_id="r")
    assert result.get_response()["id"] == "r"
    assert result.as_numpy("YA").tolist() == [[1, 2]]
    assert result.as_numpy("YB").tolist() == [[1, 2, 3]]


# --- members


def test_members_that_are_not_known_are_ignored(post):
    assert post({"model_name": "other", "inputs": [{**X, "note": 1}], "more": None}).status_code == 200


def test_a_byte_order_mark_is_no_part_of_the_json(post):
    assert post(b"\xef\xbb\xbf" + json.dumps({"inputs": [X]}).encode()).status_code == 200


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (b"", "the document is empty at 0"),
        (b"{", "failed to parse the request JSON buffer"),
        (b"{'inputs': []}", "failed to parse the request JSON buffer"),
        (b'{"inputs": []} x', "failed to parse the request JSON buffer"),
        (b'{"inputs": []}\0', "failed to parse the request JSON buffer"),
        (b'{"inputs": [\xff]}', "failed to parse the request JSON buffer"),
        (b"[1]", "must be a JSON object, got array"),
        (b"null", "must be a JSON object, got null"),
        (b'"x"', "must be a JSON object, got string"),
        ({}, "'inputs'"),
        ({"inputs": {}}, "'inputs': it must be an array, got object"),
        ({"inputs": None}, "'inputs': it must be an array, got null"),
        ({"inputs": [1]}, "inputs[0] must be an object, got number 1"),
        ({"inputs": [X], "id": 7}, "'id' must be a string, got number 7"),
        ({"inputs": [X], "id": None}, "'id' must be a string, got null"),
        ({"inputs": [X], "parameters": []}, "'parameters' must be an object, got array"),
        ({"inputs": [X], "outputs": {}}, "'outputs': it must be an array, got object"),
        ({"inputs": [X], "outputs": ["Y"]}, "outputs[0] must be an object, got string 'Y'"),
        ({"inputs": [X], "outputs": [{}]}, "outputs[0] has no member 'name'"),
        ({"inputs": [X], "outputs": [{"name": 1}]}, "'name' of outputs[0] must be a string"),
        ({"inputs": [X], "outputs": [{"name": "Y", "parameters": 1}]}, "'parameters' of output 'Y'"),
        ({"inputs": [X], "outputs": [{"name": "Y", "parameters": {"binary_data": 1}}]}, "'binary_data' of output 'Y'"),
        ({"inputs": [{**X, "name": 1}]}, "'name' of inputs[0] must be a string"),
        ({"inputs": [{**X, "datatype": 1}]}, "'datatype' of input 'X' must be a string"),
        ({"inputs": [{"name": "X", "shape": [1, 2], "data": [1, 2]}]}, "input 'X' has no member 'datatype'"),
        ({"inputs": [{"name": "X", "datatype": "FP32", "data": [1, 2]}]}, "input 'X' has no member 'shape'"),
        ({"inputs": [{"shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}, "inputs[0] has no member 'name'"),
        ({"inputs": [{**X, "parameters": 1}]}, "'parameters' of input 'X' must be an object"),
    ],
)
def test_json_that_is_wrong_is_400_and_says_where(post, error, document, named):
    assert named in error(post(document))


@pytest.mark.parametrize(
    ("item", "set_fields"),
    [
        ({"name": "X", "shape": [1, 2], "datatype": "FP32"}, "none of them"),
        ({**X, "parameters": {"binary_data_size": 8}}, "'binary_data_size' and 'data'"),
        ({**X, "parameters": {"shared_memory_region": "r"}}, "'shared_memory_region' and 'data'"),
        ({**BINARY_X, "parameters": {"binary_data_size": 8, "shared_memory_region": "r"}}, "'binary_data_size' and 'shared_"),
    ],
)
def test_an_input_has_exactly_one_source_of_data(post, error, item, set_fields):
    text = error(post({"inputs": [item]}))
    assert text.startswith("Input must set only one of the following fields")
    assert set_fields in text


# --- parameters


@pytest.mark.parametrize("value", ["text", 7, -(2**63), 2**63 - 1, 1.5, True])
def test_custom_parameters_may_be_strings_numbers_and_booleans(post, value):
    assert post({"inputs": [X], "parameters": {"mine": value}}).status_code == 200


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, 2**63])
def test_other_custom_parameters_are_refused_by_key(post, error, value):
    assert "'mine'" in error(post({"inputs": [X], "parameters": {"mine": value}}))


@pytest.mark.parametrize("key", ["triton_x", "triton_enable_empty_final_response"])
def test_the_prefix_triton_is_reserved(post, error, key):
    assert f"'{key}'" in error(post({"inputs": [X], "parameters": {key: True}}))


@pytest.mark.parametrize(
    "parameters",
    [
        {"priority": 0},
        {"priority": 2**64 - 1},
        {"timeout": 0},
        {"timeout": 10_000_000},
        {"sequence_id": 0},
        {"sequence_id": ""},
    ],
)
def test_parameters_of_scheduling_are_accepted(post, parameters):
    assert post({"inputs": [X], "parameters": parameters}).status_code == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("priority", -1), ("priority", "1"), ("priority", 1.0), ("priority", True), ("priority", 2**64),
        ("timeout", -1), ("timeout", "1"), ("timeout", None), ("timeout", 0.5),
        ("sequence_id", -1), ("sequence_id", 1.5), ("sequence_id", None), ("sequence_id", True),
        ("sequence_start", 1), ("sequence_end", "true"), ("binary_data_output", 1), ("binary_data_output", "true"),
    ],
)  # fmt: skip
def test_parameters_with_a_meaning_have_their_types(post, error, key, value):
    assert f"'{key}'" in error(post({"inputs": [X], "parameters": {key: value}}))


# --- the binary section


def test_blobs_are_taken_in_the_order_of_the_inputs(post):
    b = {"name": "B", "shape": [1, 1], "datatype": "INT32", "parameters": {"binary_data_size": 4}}
    a = {"name": "A", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    outputs = post({"inputs": [b, a]}, struct.pack("<if", 7, 1.5), model="two").json()["outputs"]
    assert [output["data"] for output in outputs] == [[1.5], [7]]


def test_json_and_binary_inputs_mix(post):
    b = {"name": "B", "shape": [1, 1], "datatype": "INT32", "parameters": {"binary_data_size": 4}}
    outputs = post({"inputs": [AB[0], b]}, struct.pack("<i", 7), model="two").json()["outputs"]
    assert [output["data"] for output in outputs] == [[1.5], [7]]


def test_a_blob_that_is_too_short_tells_how_much_is_missing(post, error):
    text = error(post({"inputs": [BINARY_X]}, BLOB[:5]))
    assert text == "unexpected size for input 'X', expecting 3 additional bytes for model 'echo'"


def test_bytes_behind_the_last_blob_are_refused(post, error):
    assert "unexpected additional input data for model 'echo'" in error(post({"inputs": [BINARY_X]}, BLOB + b"\0"))


def test_a_blob_without_the_length_header_is_refused(post, error):
    assert "expecting 8 additional bytes" in error(post({"inputs": [BINARY_X]}))


def test_a_size_that_does_not_fit_the_shape_gives_both(post, error):
    text = error(post({"inputs": [{**BINARY_X, "shape": [1, 3]}]}, BLOB))
    assert "input byte size mismatch for input 'X' for model 'echo'. Expected 12, got 8" in text


@pytest.mark.parametrize("size", [-1, 8.0, "8", None, True, 2**64])
def test_the_size_of_a_blob_is_an_unsigned_integer(post, error, size):
    item = {**BINARY_X, "parameters": {"binary_data_size": size}}
    assert "'binary_data_size' of input 'X'" in error(post({"inputs": [item]}, BLOB))


@pytest.mark.parametrize("size", [2**31, 2**63, 2**64 - 1])
def test_a_huge_announced_blob_allocates_nothing(post, error, size):
    item = {**BINARY_X, "parameters": {"binary_data_size": size}}
    assert "additional bytes" in error(post({"inputs": [item]}, BLOB))


@pytest.mark.parametrize("length", ["-1", "1.5", "abc", "0x10", "+5", "1e2", "99999999999", "9" * 50, "2147483648"])
def test_a_length_header_that_is_no_whole_number_is_refused(post, error, length):
    text = error(post({"inputs": [X]}, Inference_Header_Content_Length=length))
    assert "inference header size should be in range" in text


def test_a_length_header_beyond_the_body_is_refused(post, error):
    assert "inference header size should be in range (0, " in error(
        post({"inputs": [X]}, Inference_Header_Content_Length="5000")
    )


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"\3\0\0\0ab", "incomplete"),
        (b"\3\0", "incomplete string length indicator"),
        (b"", "expected 1 string elements"),
        (b"\1\0\0\0a\1\0\0\0b", "unexpected number of string elements"),
        (b"\xff\xff\xff\xffab", "incomplete"),
    ],
)
def test_strings_as_bytes_are_checked_against_their_lengths(post, error, blob, words):
    item = {"name": "X", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(blob)}}
    document = json.dumps({"inputs": [item]}).encode()
    response = post(document, blob, model="echo_bytes", Inference_Header_Content_Length=str(len(document)))
    assert words in error(response)


# --- raw binary requests


def test_a_header_length_of_zero_makes_the_body_the_one_input(ask):
    response = ask("POST", "/v2/models/echo/infer", data=BLOB, headers={"Inference-Header-Content-Length": "0"})
    length = int(response.headers["inference-header-content-length"])
    output = json.loads(response.content[:length])["outputs"][0]
    assert (output["shape"], output["parameters"]) == ([1, 2], {"binary_data_size": 8})
    assert response.content[length:] == BLOB


def test_a_raw_string_gets_its_length_put_in_front(ask):
    response = ask("POST", "/v2/models/echo_bytes/infer", data=b"hello", headers={"Inference-Header-Content-Length": "0"})
    assert response.content.endswith(b"\5\0\0\0hello")


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        ("two", BLOB, "exactly 1 input"),
        ("free", BLOB, "one variable dimension"),
        ("echo", BLOB[:7], "7 bytes don't fill input 'X'"),
        ("img", BLOB, "don't fill input 'X'"),
        ("fixed", BLOB, "X"),
    ],
)
def test_a_raw_body_that_does_not_fit_the_model_is_refused(ask, error, model, body, words):
    response = ask("POST", f"/v2/models/{model}/infer", data=body, headers={"Inference-Header-Content-Length": "0"})
    assert words in error(response)
