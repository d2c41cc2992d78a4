"""Arrays of every numpy dtype as outputs: the client gets exactly them, or an error naming output, dtype and what is wanted."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tritonclient.http
from python_models import IO, Config, source, write_python_model
from python_models.batched import ask, tensor
from server_process import ServerProcess

INPUTS = (IO("KIND", "BYTES", "1"), IO("OUT", "BYTES", "1"))
OUTPUTS = (IO("L", "BYTES"), IO("F"), IO("I", "INT32"), IO("B", "BOOL"))

RIGHT = {
    ("unicode", "L"): ["setosa", "virginica"],
    ("fixed_bytes", "L"): ["setosa", "virginica"],
    ("mixed", "L"): ["setosa", "virginica"],
    ("not_ascii", "L"): ["é", "", "日本"],
    ("no_elements", "L"): [],
    ("zero_dimensions", "L"): ["x"],
    ("numbers", "L"): ["1", "2.5", "True"],
    ("object_with_zeros", "L"): ["a\0b", "c\0"],
    # numpy's own type drops zeros at the end.
    ("fixed_bytes_with_zeros", "L"): ["a\0b", "c"],
    ("float32", "F"): [1.5, -2],
    ("int32", "I"): [1, -2],
    ("bool", "B"): [True, False],
    ("big_endian", "I"): [1, -2],
    ("strided", "I"): [0, 3],
    ("reversed", "F"): [2, 1, 0],
    ("broadcast", "F"): [3, 3, 3],
    ("read_only", "F"): [4],
}
REFUSED = {
    ("none", "L"): r"'L'.*\[1\].*None|'L'.*element 1.*None",
    ("nested", "L"): r"'L'.*1.*list",
    ("half_a_pair", "L"): r"'L'.*0",
    ("numbers_for_strings", "L"): r"'L'.*float32.*BYTES",
    ("strings_for_numbers", "F"): r"'F'.*FP32",
    ("float64", "F"): r"'F'.*float64.* given, FP32 declared",
    ("float16", "F"): r"'F'.*float16.* given, FP32 declared",
    ("int32", "F"): r"'F'.*int32.* given, FP32 declared",
    ("bool", "F"): r"'F'.*bool.* given, FP32 declared",
    ("int64", "I"): r"'I'.*int64.* given, INT32 declared",
    ("uint32", "I"): r"'I'.*uint32.* given, INT32 declared",
    ("int8", "B"): r"'B'.*int8.* given, BOOL declared",
    ("complex", "F"): r"'F'.*complex128",
    ("datetime", "I"): r"'I'.*datetime64",
    ("structured", "I"): r"'I'.*(void|i4)",
    ("longdouble", "F"): r"'F'.*(longdouble|float128)",
    ("masked", "F"): r"'F'.*masked",
    ("list", "F"): r"'F' needs a numpy array, got a list",
    ("float", "F"): r"'F' needs a numpy array, got a float",
    ("bytes", "L"): r"'L' needs a numpy array, got a bytes",
    ("none_at_all", "F"): r"'F' needs a numpy array, got a NoneType",
    ("says_array", "F"): r"'F' needs a numpy array, got a SaysArray",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "dtypes", source("dtypes"), Config(INPUTS, OUTPUTS, 0))
    return serve_for_module(repository)


def answer(server: ServerProcess, kind: str, output: str):
    inputs = [tensor("KIND", "BYTES", (1,), kind), tensor("OUT", "BYTES", (1,), output)]
    return ask(server, "dtypes", *inputs, outputs=[{"name": output}])


def binary_answer(server: ServerProcess, kind: str, output: str) -> np.ndarray:
    inputs = []
    for name, text in (("KIND", kind), ("OUT", output)):
        inputs.append(tritonclient.http.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([text], dtype=object))
    with tritonclient.http.InferenceServerClient(server.http) as client:
        found = client.infer("dtypes", inputs, outputs=[tritonclient.http.InferRequestedOutput(output, binary_data=True)])
    return found.as_numpy(output)


@pytest.mark.parametrize(("kind", "output"), RIGHT, ids=["-".join(pair) for pair in RIGHT])
def test_an_array_of_the_declared_type_arrives_as_it_is_in_json_and_in_binary(server, kind, output):
    expected = RIGHT[kind, output]
    assert answer(server, kind, output) == (200, {output: expected})
    found = binary_answer(server, kind, output)
    assert found.shape == (len(expected),)
    assert [item.decode() if isinstance(item, bytes) else item for item in found.tolist()] == expected


@pytest.mark.parametrize(("kind", "output"), REFUSED, ids=["-".join(pair) for pair in REFUSED])
def test_any_other_array_is_refused_by_name_and_the_model_goes_on(server, kind, output):
    status, text = answer(server, kind, output)
    assert (status, bool(re.search(REFUSED[kind, output], text))) == (500, True), text
    assert answer(server, "float32", "F") == (200, {"F": [1.5, -2]})


def test_numbers_that_arent_finite_arrive(server):
    found = binary_answer(server, "not_finite", "F")
    assert np.isnan(found[0])
    assert found[1:].tolist() == [np.inf, -np.inf]


def test_no_worker_was_lost_on_the_way(server):
    assert server.process.poll() is None
    assert not any("restart" in line for line in server.errors)
