"""Calls of a program to its own server's models: the answers are those of HTTP, on any thread and any loop."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import requests
from http_models import CONFIG_TYPES, write_everything
from hypothesis import given
from hypothesis import strategies as st
from served_functions import Gate, ask_by_triton, row, serving
from waiting import wait_until

import naiad
from naiad import InferenceServerError
from naiad.errors import Code
from naiad.tensor.datatype import BY_NAME


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = write_everything(tmp_path_factory.mktemp("models"))
    with naiad.Server(model_repository=repository, http_port=0, grpc_port=0, metrics_port=0) as server:
        yield server


def example(datatype: str) -> np.ndarray:
    if datatype == "BYTES":
        return np.array([["ä".encode(), b"", b"\x00\xff"]], object)
    if datatype == "BF16":
        return np.array([[1.5, -0.0, 3e38]], ml_dtypes.bfloat16)
    return np.array([[0, 1, 1]], BY_NAME[datatype].numpy)


@pytest.mark.parametrize("datatype", CONFIG_TYPES)
def test_the_answer_is_the_one_that_http_gives(server, datatype):
    array = example(datatype)
    model = f"echo_{datatype.lower()}"
    direct = server.models[model].infer({"X": array})["Y"]
    assert direct.dtype == array.dtype
    assert direct.tolist() == array.tolist()
    by_http = ask_by_triton(server.http_address, model, {"X": datatype}, X=array)["Y"]
    assert by_http.tolist() == direct.tolist()


@given(st.lists(st.lists(st.binary(max_size=9), min_size=2, max_size=2), min_size=1, max_size=8))
def test_strings_of_any_content_come_back_as_over_http(server, words):
    array = np.array(words, object)
    direct = server.models["echo_bytes"].infer({"X": array})["Y"]
    by_http = ask_by_triton(server.http_address, "echo_bytes", {"X": "BYTES"}, X=array)["Y"]
    assert direct.tolist() == by_http.tolist() == words


def http_error(server, model: str, inputs: list, **more) -> str:
    body = json.dumps({"inputs": inputs, **more})
    answer = requests.post(f"http://{server.http_address}/v2/models/{model}/infer", body, timeout=10)
    assert answer.status_code >= 400
    return answer.json()["error"]


MISTAKES = {
    "datatype": ("two", {"A": np.zeros((1, 2), np.float64), "B": np.zeros((1, 2), np.int32)}, {}),
    "shape": ("fixed", {"X": row(1, 2)}, {}),
    "no batch dimension": ("fixed", {"X": np.zeros(16, np.float32)}, {}),
    "batch too large": ("echo", {"X": np.zeros((9, 1), np.float32)}, {}),
    "missing input": ("two", {"A": row(1)}, {}),
    "unknown input": ("echo", {"Z": row(1)}, {}),
    "unknown output": ("echo", {"X": row(1)}, {"outputs": ["Z"]}),
    "unknown model": ("nobody", {"X": row(1)}, {}),
    "unknown version": ("echo", {"X": row(1)}, {"version": 9}),
    "reserved parameter": ("echo", {"X": row(1)}, {"parameters": {"triton_x": 1}}),
    "wrong priority": ("echo", {"X": row(1)}, {"parameters": {"priority": -1}}),
}


@pytest.mark.parametrize(("model", "inputs", "more"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_the_words_that_http_gives(server, model, inputs, more):
    handle = server.models[model]
    path = model
    if "version" in more:
        handle, path = handle.version(more["version"]), f"{model}/versions/{more['version']}"
    keywords = {name: value for name, value in more.items() if name != "version"}
    with pytest.raises(InferenceServerError) as raised:
        handle.infer(inputs, **keywords)
    names = {np.dtype(np.float32): "FP32", np.dtype(np.float64): "FP64", np.dtype(np.int32): "INT32"}
    body = [
        {"name": name, "datatype": names[array.dtype], "shape": array.shape, "data": array.reshape(-1).tolist()}
        for name, array in inputs.items()
    ]
    if "outputs" in keywords:
        keywords["outputs"] = [{"name": name} for name in keywords["outputs"]]
    assert raised.value.message == http_error(server, path, body, **keywords)


def test_only_the_outputs_that_are_wanted_come_back(server):
    inputs = {"A": row(1), "B": np.array([[2]], np.int32)}
    assert list(server.models["two"].infer(inputs, outputs=["YB"])) == ["YB"]
    assert list(server.models["two"].infer(inputs)) == ["YA", "YB"]


def test_what_is_sent_may_be_a_list_and_what_comes_back_is_the_programs_own(server):
    array = row(1, 2)
    answer = server.models["echo"].infer({"X": array})["Y"]
    answer += 1
    assert array.tolist() == [[1, 2]]
    assert server.models["echo_bool"].infer({"X": [[True, False]]})["Y"].tolist() == [[True, False]]


def test_versions_are_asked_for_by_number(server):
    model = server.models["versions"]
    assert model.metadata.versions == ("3", "12")
    assert model.version(3).metadata.versions == ("3",)
    assert model.version(3).is_ready()
    assert not model.version(1).is_ready()


def test_models_are_listed_by_name(server):
    listed = requests.post(f"http://{server.http_address}/v2/repository/index", timeout=10).json()
    assert sorted(server.models) == sorted({entry["name"] for entry in listed})
    assert "echo" in server.models
    assert "nobody" not in server.models
    assert len(server.models) == len(list(server.models))


def test_the_configuration_is_a_copy(server):
    server.models["echo"].config["input"].clear()
    assert server.models["echo"].config["input"]


def test_a_model_that_answers_once_streams_one_response(server):
    model = server.models["echo"]

    async def collect():
        return [response async for response in model.stream_async({"X": row(1)})]

    for responses in (list(model.stream({"X": row(1)})), asyncio.run(collect())):
        assert [response["Y"].tolist() for response in responses] == [[[1]]]


def test_a_stream_raises_the_error_that_ends_it(server):
    model = server.models["nobody"]

    async def collect():
        return [response async for response in model.stream_async({"X": row(1)})]

    with pytest.raises(InferenceServerError, match="nobody"):
        list(model.stream({"X": row(1)}))
    with pytest.raises(InferenceServerError, match="nobody"):
        asyncio.run(collect())


def test_threads_loops_and_clients_call_at_once(server):
    model = server.models["echo"]

    def by_thread(number: float):
        return model.infer({"X": row(number)})["Y"].tolist()

    async def many(numbers: list[float]):
        return [answer["Y"].tolist() for answer in await asyncio.gather(*(model.infer_async({"X": row(n)}) for n in numbers))]

    def by_loop(first: int):
        return asyncio.run(many(list(range(first, first + 50))))

    def by_triton(number: float):
        return ask_by_triton(server.http_address, "echo", {"X": "FP32"}, X=row(number))["Y"].tolist()

    with ThreadPoolExecutor(12) as threads:
        direct = [threads.submit(by_thread, number) for number in range(200)]
        loops = [threads.submit(by_loop, first) for first in (1000, 2000)]
        clients = [threads.submit(by_triton, number) for number in range(20)]
        assert [future.result() for future in direct] == [[[number]] for number in range(200)]
        assert [future.result() for future in loops] == [[[[n]] for n in range(first, first + 50)] for first in (1000, 2000)]
        assert [future.result() for future in clients] == [[[number]] for number in range(20)]


def test_a_call_is_given_up_after_its_timeout():
    gate = Gate()
    with serving(gate) as model:
        with pytest.raises(InferenceServerError, match=r"not answered within the timeout of 0.05 s") as raised:
            model.infer({"x": row(1)}, timeout_s=0.05)
        with pytest.raises(InferenceServerError, match="timeout"):
            list(model.stream({"x": row(1)}, timeout_s=0.05))
        gate.opened.set()
        assert model.infer({"x": row(1)}, timeout_s=10)["y"].tolist() == [[2]]
    assert raised.value.code is Code.DEADLINE_EXCEEDED


def cancelled_count(model) -> int:
    return model.statistics["inference_stats"]["fail"]["count"]


def test_a_coroutine_that_is_cancelled_cancels_its_request():
    gate = Gate()

    async def main(model):
        running = asyncio.create_task(model.infer_async({"x": row(1)}))
        waiting = asyncio.create_task(model.infer_async({"x": row(2)}))
        await asyncio.to_thread(gate.began.wait, 10)
        running.cancel()
        waiting.cancel()
        assert [type(item) for item in await asyncio.gather(running, waiting, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2

    with serving(gate, batching=False, inputs=(naiad.Tensor("x", "FP32", (1, 1)),)) as model:
        asyncio.run(main(model))
        wait_until(lambda: cancelled_count(model) == 2, what="both requests to be cancelled")
        gate.opened.set()
    assert len(gate.batches) == 1


def test_a_stream_that_is_left_early_cancels_its_request():
    gate = Gate()
    with serving(gate) as model:
        holder = model.infer_async({"x": row(1)})

        async def main():
            first = asyncio.create_task(holder)
            await asyncio.to_thread(gate.began.wait, 10)
            stream = model.stream_async({"x": row(2)})
            reading = asyncio.create_task(anext_of(stream))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await stream.aclose()
            await asyncio.to_thread(wait_until, lambda: cancelled_count(model) == 1)
            gate.opened.set()
            return await first

        assert asyncio.run(main())["y"].tolist() == [[2]]
    assert gate.batches == [1]


async def anext_of(stream):
    return await stream.__anext__()


def test_a_function_may_call_another_model():
    server = naiad.Server(http=False)
    x, y = naiad.Tensor("x", "FP32", (-1,)), naiad.Tensor("y", "FP32", (-1,))
    server.bind("inner", lambda x: x + 1, [x], [y])
    server.bind("outer", lambda x: server.models["inner"].infer({"x": x})["y"] * 2, [x], [y])
    with server:
        assert server.models["outer"].infer({"x": row(1)})["y"].tolist() == [[4]]
