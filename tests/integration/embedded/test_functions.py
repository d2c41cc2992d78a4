"""A function that is served: what clients send reaches it, what it returns reaches them, by the path of every model."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from served_functions import Gate, X, Y, ask_by_triton, reachable, row, serving, wait_pending

import naiad
from naiad import Batching, InferenceServerError, Tensor, model_function
from naiad.errors import Code

A, B = Tensor("a", "FP32", (-1,)), Tensor("b", "FP32", (-1,))
S, D = Tensor("s", "FP32", (-1,)), Tensor("d", "FP32", (-1,))


def add_sub(a, b):
    return {"s": a + b, "d": a - b}


def error_of(model, **inputs) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as raised:
        model.infer(inputs)
    return raised.value


def test_clients_of_triton_and_the_program_get_the_same():
    with reachable(add_sub, (A, B), (S, D)) as server:
        by_triton = ask_by_triton(server.http_address, "m", {"a": "FP32", "b": "FP32"}, a=row(1, 2), b=row(3, 4))
        direct = server.models["m"].infer({"a": row(1, 2), "b": row(3, 4)})
    expected = {"s": [[4, 6]], "d": [[-2, -2]]}
    assert {name: array.tolist() for name, array in by_triton.items()} == expected
    assert {name: array.tolist() for name, array in direct.items()} == expected


def test_requests_that_wait_run_together_and_each_gets_its_own_rows():
    gate = Gate()
    with reachable(gate, batching=Batching(8)) as server, ThreadPoolExecutor(9) as threads:
        infer = server.models["m"].infer
        first = threads.submit(infer, {"x": row(-1)})
        assert gate.began.wait(10)
        rest = [threads.submit(infer, {"x": row(number)}) for number in range(8)]
        wait_pending(server, 8)
        gate.opened.set()
        assert first.result()["y"].tolist() == [[-2]]
        assert [future.result()["y"].tolist() for future in rest] == [[[number * 2]] for number in range(8)]
    assert gate.batches == [1, 8]


def test_without_batching_the_function_gets_what_the_client_sent():
    seen = []
    with serving(lambda x: seen.append(x.shape) or x, batching=False) as model:
        assert model.infer({"x": np.zeros(3, np.float32)})["y"].shape == (3,)
        assert model.metadata.inputs[0].shape == (-1,)
    assert seen == [(3,)]


def test_one_value_an_item_has_no_dimension_in_the_function():
    seen = []
    x, y = Tensor("x", np.float32, ()), Tensor("y", np.float32, ())
    with serving(lambda x: seen.append(x.shape) or x * 2, [x], [y]) as model:
        assert model.infer({"x": [[1.0], [2.0]]} | {"x": np.array([[1], [2]], np.float32)})["y"].tolist() == [[2], [4]]
    assert seen == [(2,)]


def test_a_list_of_functions_is_as_many_instances():
    gate = Gate()
    with serving([gate, gate, gate], batching=False) as model, ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(model.infer, {"x": np.zeros(1, np.float32)}) for _ in range(3)]
        gate.opened.set()
        assert [answer.result()["y"].tolist() for answer in answers] == [[0]] * 3
        assert model.config["instance_group"][0]["count"] == 3


def test_a_function_of_requests_gets_them_one_by_one_with_their_parameters():
    batches = []

    def scale(requests):
        batches.append([(item.outputs, dict(item.parameters)) for item in requests])
        return [{"y": item.inputs["x"] * item.parameters.get("by", 1)} for item in requests]

    with serving(scale, takes_requests=True) as model:
        assert model.infer({"x": row(1, 2)}, parameters={"by": 3})["y"].tolist() == [[3, 6]]
        assert model.infer({"x": row(1)}, outputs=["y"])["y"].tolist() == [[1]]
    assert batches == [[(("y",), {"by": 3})], [(("y",), {})]]


def test_requests_that_run_together_keep_their_own_shapes_in_a_function_of_requests():
    gate, sizes = Gate(), []

    def each(requests):
        sizes.append(len(requests))
        return [gate(item.inputs["x"]) for item in requests]

    with reachable(each, takes_requests=True) as server, ThreadPoolExecutor(3) as threads:
        infer = server.models["m"].infer
        first = threads.submit(infer, {"x": row(0)})
        assert gate.began.wait(10)
        rest = [threads.submit(infer, {"x": row(number, number)}) for number in (1, 2)]
        wait_pending(server, 2)
        gate.opened.set()
        assert [future.result()["y"].tolist() for future in (first, *rest)] == [[[0]], [[2, 2]], [[4, 4]]]
    assert sizes == [1, 2]


def test_an_optional_input_that_is_left_out_is_the_parameters_default():
    extra = Tensor("extra", np.float32, (-1,), is_optional=True)
    with serving(lambda x, extra=None: x if extra is None else x + extra, [X, extra]) as model:
        assert model.infer({"x": row(1)})["y"].tolist() == [[1]]
        assert model.infer({"x": row(1), "extra": row(2)})["y"].tolist() == [[3]]


def test_strings_go_both_ways():
    words = Tensor("x", str, (-1,))

    def upper(x):
        return np.vectorize(lambda word: word.decode().upper(), otypes=[object])(x)

    with serving(upper, [words], [Tensor("y", bytes, (-1,))]) as model:
        assert model.infer({"x": [["ä", "b"]]})["y"].tolist() == [["Ä".encode(), b"B"]]


def test_what_a_function_raises_reaches_the_client_and_the_log(caplog):
    def fail(x):
        raise ValueError("no luck: ü")

    with serving(fail) as model:
        error = error_of(model, x=row(1))
    assert (error.code, error.message) == (Code.INTERNAL, "model 'm' failed: ValueError: no luck: ü")
    (record,) = [item for item in caplog.records if item.name == "naiad.function"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "in fail" in caplog.text


def test_an_error_with_a_code_keeps_it_and_is_no_fault(caplog):
    def refuse(x):
        raise InferenceServerError(Code.INVALID_ARGUMENT, "x is too high")

    with serving(refuse) as model:
        error = error_of(model, x=row(1))
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "model 'm' failed: x is too high")
    assert "Traceback" not in caplog.text


def test_a_function_that_exits_costs_its_request_only():
    def leave(x):
        if x[0, 0] < 0:
            sys.exit("bye")
        return x

    with serving(leave) as model:
        assert error_of(model, x=row(-1)).message == "model 'm' failed: SystemExit: bye"
        assert model.infer({"x": row(1)})["y"].tolist() == [[1]]


def test_a_bad_request_of_a_batch_fails_alone():
    gate = Gate()

    def picky(x):
        if (x < 0).any():
            raise ValueError("negative")
        return gate(x)

    with reachable(picky) as server, ThreadPoolExecutor(4) as threads:
        infer = server.models["m"].infer
        first = threads.submit(infer, {"x": row(0)})
        assert gate.began.wait(10)
        rest = [threads.submit(infer, {"x": row(number)}) for number in (1, -1, 2)]
        wait_pending(server, 3)
        gate.opened.set()
        assert [first.result()["y"].tolist(), rest[0].result()["y"].tolist()] == [[[0]], [[2]]]
        assert rest[2].result()["y"].tolist() == [[4]]
        with pytest.raises(InferenceServerError, match="negative"):
            rest[1].result()


WRONG = {
    "dtype": (lambda x: x.astype(np.float64), "'y' has the wrong datatype: .* given, FP32 declared"),
    "batch size": (lambda x: np.concatenate([x, x]), "'y' has shape"),
    "rank": (lambda x: x[0], "'y' has shape"),
    "no array": (lambda x: {"y": [1.0]}, "'y' is a list, must be a numpy array"),
    "name": (lambda x: {"z": x}, "returned output 'z'"),
    "missing": (lambda x: {}, "returned no output 'y'"),
    "nothing": (lambda x: None, "returned a NoneType"),
}


@pytest.mark.parametrize(("function", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_result_is_an_error_that_names_what_is_wrong(function, text):
    with serving(function) as model, pytest.raises(InferenceServerError, match=text) as raised:
        model.infer({"x": row(1, 2)})
    assert raised.value.code is Code.INTERNAL


def test_the_configuration_statistics_and_metrics_are_those_of_a_model():
    with reachable(add_sub, (A, B), (S, D), batching=Batching(16, max_queue_delay_us=50)) as server:
        url = f"http://{server.http_address}/v2/models/m"
        server.models["m"].infer({"a": row(1), "b": row(2)})
        config = requests.get(f"{url}/config", timeout=10).json()
        statistics = requests.get(f"{url}/stats", timeout=10).json()["model_stats"][0]
        metrics = requests.get(f"http://{server.metrics_address}/metrics", timeout=10).text
        assert config == server.models["m"].config
    assert (config["backend"], config["max_batch_size"]) == ("function", 16)
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 50
    assert [item["name"] for item in config["output"]] == ["s", "d"]
    assert statistics["inference_count"] == 1
    assert 'nv_inference_request_success{model="m",version="1"} 1' in metrics


def test_a_decorated_function_brings_its_signature():
    @model_function([X], [Y], batching=False)
    def double(x):
        return x * 2

    server = naiad.Server(http=False)
    server.bind("double", double)
    with server:
        assert server.models["double"].infer({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]


BAD_BINDS = {
    "without tensors": (lambda server: server.bind("m", add_sub), "needs inputs and outputs"),
    "twice": (lambda server: [server.bind("m", add_sub, [A, B], [S, D]) for _ in "ab"], "there is a model 'm' already"),
    "said twice": (
        lambda server: server.bind("m", model_function([A, B], [S, D])(add_sub), [A, B], [S, D]),
        "says its inputs and outputs already",
    ),
    "no function": (lambda server: server.bind("m", [], [X], [Y]), "has no function"),
    "generator": (lambda server: server.bind("m", lambda x: (yield x), [X], [Y]), "a generator can't be served"),
}


@pytest.mark.parametrize(("bind", "text"), BAD_BINDS.values(), ids=BAD_BINDS)
def test_a_function_that_can_not_be_served_is_refused_when_it_is_bound(bind, text):
    with pytest.raises(InferenceServerError, match=text):
        bind(naiad.Server(http=False))


def test_a_configuration_that_no_model_may_have_is_refused_at_the_start():
    server = naiad.Server(http=False)
    server.bind("m", lambda x: x, [X, Tensor("x", np.float32, (1,))], [Y])
    with pytest.raises(InferenceServerError, match="'m'"):
        server.start()


def test_nothing_to_serve_is_said():
    with pytest.raises(InferenceServerError, match="nothing to serve"):
        naiad.Server(http=False).start()


def test_functions_are_bound_before_the_server_runs():
    with reachable(lambda x: x) as server, pytest.raises(InferenceServerError, match="before the server runs"):
        server.bind("late", lambda x: x, [X], [Y])
