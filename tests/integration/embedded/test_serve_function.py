"""`naiad serve module:function`: the function runs in a worker process, and does what it does in a program's own server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import requests
import tritonclient.http as triton
from served_functions import ask_by_triton, row
from server_process import ServerProcess
from waiting import wait_until

MODULE = """
import os
from pathlib import Path

import numpy as np
from beside import FACTOR

import naiad
from naiad import Batching, Tensor, model_function

X, Y = Tensor("x", np.float32, (-1,)), Tensor("y", np.float32, (-1,))


@model_function([X], [Y, Tensor("pid", np.int64, ()), Tensor("items", np.int64, ())], batching=Batching(8, 1_000_000, (4,)))
def scale(x):
    if (x < 0).any():
        raise ValueError("negative: ü")
    return {"y": x * FACTOR, "pid": np.full(len(x), os.getpid()), "items": np.full(len(x), len(x))}


@model_function([Tensor("x", str, (-1,))], [Tensor("y", str, (-1,))], batching=False)
def upper(inputs):
    return np.array([word.decode().upper() for word in inputs["x"]])


@model_function([Tensor("x", "BF16", (-1,))], [Tensor("y", "BF16", (-1,))], takes_requests=True)
def each(requests):
    return [item.inputs["x"] * item.parameters.get("by", 1) for item in requests]


@model_function([X], [Y])
def wrong(x):
    return x.astype(np.float64)


@model_function([X], [Y])
def exits(x):
    os._exit(3)


def bare(x):
    return x
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "mine.py").write_text(MODULE, encoding="utf-8")
    (folder / "beside.py").write_text("FACTOR = 2\n")
    return folder


@pytest.fixture(scope="module")
def server(folder, serve_for_module) -> ServerProcess:
    names = ("scale", "upper", "each", "wrong", "exits")
    return serve_for_module(*(f"mine:{name}" for name in names), directory=folder)


def test_the_function_runs_in_another_process(server):
    answer = ask_by_triton(server.http, "scale", {"x": "FP32"}, x=np.array([[1, 2]] * 4, np.float32))
    assert answer["y"].tolist() == [[2, 4]] * 4
    assert server.pid not in set(answer["pid"].ravel().tolist())


def test_requests_run_together_and_each_gets_its_own_rows(server):
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask_by_triton, server.http, "scale", {"x": "FP32"}, x=row(n)) for n in range(4)]
        answers = [future.result() for future in asked]
    assert [answer["y"].tolist() for answer in answers] == [[[n * 2]] for n in range(4)]
    assert [answer["items"].tolist() for answer in answers] == [[[4]]] * 4


def test_a_bad_request_of_a_batch_fails_alone_and_its_traceback_is_logged(server):
    def ask(number: float):
        try:
            return ask_by_triton(server.http, "scale", {"x": "FP32"}, x=row(number))["y"].tolist()
        except triton.InferenceServerException as error:
            return error.message()

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, [1, -1, 2, 3]))
    assert answers == [[[2]], "model 'scale' failed: ValueError: negative: ü", [[4]], [[6]]]
    wait_until(lambda: any("ValueError: negative" in line and "scale" in line for line in server.errors))


def test_strings_and_bfloat16_go_both_ways(server):
    words = ask_by_triton(server.http, "upper", {"x": "BYTES"}, x=np.array(["ä".encode(), b"b"], object))
    assert words["y"].tolist() == ["Ä".encode(), b"B"]
    numbers = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    assert ask_by_triton(server.http, "each", {"x": "BF16"}, x=numbers)["y"].tolist() == [[1.5, -2]]


def test_a_function_of_requests_sees_their_parameters(server):
    item = triton.InferInput("x", [1, 2], "BF16")
    item.set_data_from_numpy(np.array([[1, 2]], ml_dtypes.bfloat16))
    with triton.InferenceServerClient(server.http) as client:
        result = client.infer("each", [item], parameters={"by": 3})
    assert result.as_numpy("y").tolist() == [[3, 6]]


def test_a_wrong_result_is_named(server):
    with pytest.raises(triton.InferenceServerException, match=r"'y' has the wrong datatype: .*FP64.* given, FP32 declared"):
        ask_by_triton(server.http, "wrong", {"x": "FP32"}, x=row(1))


def test_the_signature_is_the_configuration(server):
    config = requests.get(f"{server.url}/v2/models/scale/config", timeout=10).json()
    assert (config["max_batch_size"], config["backend"]) == (8, "function")
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 1_000_000
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert [item["name"] for item in config["output"]] == ["y", "pid", "items"]


def test_a_function_that_ends_its_process_costs_its_request_only(server):
    with pytest.raises(triton.InferenceServerException):
        ask_by_triton(server.http, "exits", {"x": "FP32"}, x=row(1))
    answer = ask_by_triton(server.http, "each", {"x": "BF16"}, x=np.array([[1]], ml_dtypes.bfloat16))
    assert answer["y"].tolist() == [[1]]


FAILURES = {
    "mine:nothing": "module 'mine' has no 'nothing'",
    "mine:bare": "mine:bare has no signature: decorate it with naiad.model_function",
    "nowhere:f": "No module named 'nowhere'",
}


@pytest.mark.parametrize(("target", "text"), FAILURES.items(), ids=FAILURES)
def test_a_function_that_can_not_be_found_ends_the_start(folder, target, text):
    server = ServerProcess(target, directory=folder)
    assert server.wait() == 1
    assert text in server.log()


def test_nothing_is_written_to_the_folder(server, folder):
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["beside.py", "mine.py"]
