"""The classification extension: outputs as their k best classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tritonclient.http as triton

VALUES = [0.1, 3.3, 3.4, -2.0]


@pytest.fixture
def classify(ask):
    """Ask for `k` classes of output `name` of the model `cls` for these data."""

    def send(name, k, data, shape=None, datatype="FP32"):
        item = {"name": f"{name}_in", "shape": shape or [1, len(data)], "datatype": datatype, "data": data}
        outputs = [{"name": name, "parameters": {"classification": k}}]
        return ask("POST", "/v2/models/cls/infer", {"inputs": [item], "outputs": outputs})

    return send


@pytest.fixture
def classes(classify):
    def send(*arguments, **more):
        response = classify(*arguments, **more)
        assert response.status_code == 200, response.text
        (output,) = response.json()["outputs"]
        assert output["datatype"] == "BYTES"
        return output["shape"], output["data"]

    return send


def test_the_highest_value_is_first_with_its_index_and_label(classes):
    assert classes("P", 2, VALUES) == ([1, 2], ["3.400000:2:two", "3.300000:1:one"])


@pytest.mark.parametrize("k", [4, 10, 2**31 - 1])
def test_more_classes_than_there_are_give_all(classes, k):
    shape, found = classes("P", k, VALUES)
    assert shape == [1, 4]
    assert [entry.split(":")[1] for entry in found] == ["2", "1", "0", "3"]


def test_each_item_of_a_batch_is_ranked_by_itself(classes):
    shape, found = classes("P", 1, [*VALUES, *VALUES[::-1], 0.0, 0.0, 0.0, 1.0], [3, 4])
    assert (shape, found) == ([3, 1], ["3.400000:2:two", "3.400000:1:one", "1.000000:3:three"])


def test_equal_values_are_all_there_in_a_fixed_order(classes):
    first, second = classes("P", 4, [1.0] * 4), classes("P", 4, [1.0] * 4)
    assert first == second
    assert sorted(first[1]) == ["1.000000:0:zero", "1.000000:1:one", "1.000000:2:two", "1.000000:3:three"]


def test_an_index_without_a_label_has_no_second_colon(classes):
    assert classes("Q", 4, VALUES)[1] == ["3.400000:2", "3.300000:1:one", "0.100000:0:zero", "-2.000000:3"]


def test_line_ends_and_byte_order_marks_are_no_part_of_a_label_and_colons_are(classes):
    assert classes("R", 4, [4.0, 3.0, 2.0, 1.0])[1] == [
        "4.000000:0:a:b",
        "3.000000:1",
        "2.000000:2:\u00e9t\u00e9",
        "1.000000:3:last",
    ]


def test_integers_are_written_as_integers(classes):
    found = classes("I", 4, [7, -(2**31), 2**31 - 1, 0], datatype="INT32")[1]
    assert found == [f"{2**31 - 1}:2:two", "7:0:zero", "0:3:three", f"-{2**31}:1:one"]


def test_more_dimensions_are_taken_flat(classes):
    assert classes("P2", 6, [1.0, 5.0, 3.0, 6.0, 2.0, 4.0], [1, 2, 3]) == (
        [1, 6],
        ["6.000000:3", "5.000000:1", "4.000000:5", "3.000000:2", "2.000000:4", "1.000000:0"],
    )


def test_nan_is_last_and_infinities_are_at_the_ends(classes):
    found = classes("P", 4, [math.nan, -math.inf, math.inf, 1.0])[1]
    assert [entry.split(":")[1] for entry in found] == ["2", "3", "1", "0"]
    assert [entry.split(":")[0] for entry in found] == ["inf", "1.000000", "-inf", "nan"]


def test_values_have_six_decimals_as_c_prints_them(classes):
    assert [entry.split(":")[0] for entry in classes("P", 4, [1e10, 1e-30, -0.0, -1.5])[1]] == [
        "10000000000.000000",
        "0.000000",
        "-0.000000",
        "-1.500000",
    ]


def test_zero_classes_is_the_tensor_itself(classify):
    output = classify("P", 0, [0.5, 1.5, 2.5, 3.5]).json()["outputs"][0]
    assert (output["datatype"], output["data"]) == ("FP32", [0.5, 1.5, 2.5, 3.5])


@pytest.mark.parametrize("k", [-1, "3", True, 1.0, None, 2**40])
def test_the_number_of_classes_is_an_unsigned_integer(classify, error, k):
    assert "'classification' of output 'P'" in error(classify("P", k, VALUES))


@pytest.mark.parametrize(("name", "data", "datatype"), [("S", ["a", "b"], "BYTES"), ("B", [True, False], "BOOL")])
def test_datatypes_without_an_order_are_refused_by_output_and_datatype(classify, error, name, data, datatype):
    text = error(classify(name, 1, data, datatype=datatype))
    assert f"class result not available for output due to unsupported type {datatype}" in text
    assert f"'{name}'" in text


def test_half_precision_is_refused_by_output_and_datatype(client):
    made = triton.InferInput("H_in", [1, 4], "FP16")
    made.set_data_from_numpy(np.ones((1, 4), np.float16))
    with pytest.raises(Exception, match=r"unsupported type FP16 \(output 'H'\)"):
        client.infer("cls", [made], outputs=[triton.InferRequestedOutput("H", class_count=1)])


def test_an_output_without_elements_is_refused(classify, error):
    assert "without elements" in error(classify("E", 1, [], [1, 0]))


def test_more_than_a_million_elements_are_refused(client):
    made = triton.InferInput("E_in", [1, 1_000_001], "FP32")
    made.set_data_from_numpy(np.zeros((1, 1_000_001), np.float32))
    with pytest.raises(Exception, match="1000001 elements, at most 1000000"):
        client.infer("cls", [made], outputs=[triton.InferRequestedOutput("E", class_count=1)])


@pytest.mark.parametrize("is_binary", [True, False])
def test_tritonclient_reads_classes_from_both_forms(client, is_binary):
    made = triton.InferInput("P_in", [1, 4], "FP32")
    made.set_data_from_numpy(np.array([VALUES], np.float32))
    wanted = triton.InferRequestedOutput("P", binary_data=is_binary, class_count=2)
    found = client.infer("cls", [made], outputs=[wanted]).as_numpy("P")
    assert [entry if isinstance(entry, str) else entry.decode() for entry in found.flat] == ["3.400000:2:two", "3.300000:1:one"]


def test_another_output_of_the_same_request_stays_a_tensor(ask):
    items = [{"name": f"{name}_in", "shape": [1, 4], "datatype": "FP32", "data": VALUES} for name in "PQ"]
    outputs = [{"name": "P", "parameters": {"classification": 1}}, {"name": "Q"}]
    first, second = ask("POST", "/v2/models/cls/infer", {"inputs": items, "outputs": outputs}).json()["outputs"]
    assert (first["name"], first["data"]) == ("P", ["3.400000:2:two"])
    assert (second["name"], second["datatype"]) == ("Q", "FP32")
