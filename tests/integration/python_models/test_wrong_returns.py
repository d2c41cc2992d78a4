"""Whatever `execute` gets wrong, each request gets an answer of its own that says what is wrong, and the model goes on."""

from __future__ import annotations

import re

import psutil
import pytest
import requests
from python_models import IO, Config, source, write_echo, write_python_model
from python_models.batched import ask, ask_at_once, batching_of, tensor
from server_process import ServerProcess
from waiting import wait_until

CONFIG = Config((IO("WAY", "BYTES", "1"), IO("X")), (IO("Y"), IO("Z")), 4, batching_of(3))
COUNT = r"expected 3 responses, got %d$"
LIST = r"Expected a list in the execute return, found type '%s'$"
RAISED = r"Failed to process the request\(s\) for model instance 'wrong_0_0', message: %s"

# What fails the whole batch: no response can be told to be a request's.
WHOLE_BATCH = {
    "none": LIST % "NoneType",
    "empty_list": COUNT % 0,
    "one_response": LIST % "InferenceResponse",
    "generator": LIST % "generator",
    "as_tuple": LIST % "tuple",
    "too_few": COUNT % 2,
    "too_many": COUNT % 4,
    "not_a_response": r"Expected an 'InferenceResponse' object in the execute function return list, found type 'str'",
    "raises_text": RAISED % "ValueError: é",
    "raises_system_exit": RAISED % "SystemExit: 3",
    "raises_keyboard_interrupt": RAISED % "KeyboardInterrupt",
    "raises_memory_error": RAISED % "MemoryError",
    "raises_without_text": RAISED % "ValueError",
    "raises_model_exception": RAISED % "TritonModelException: my own words",
    "recursion": RAISED % "RecursionError: maximum recursion depth exceeded",
    "text_of_surrogates": RAISED % "ValueError: half a pair: ",
}
# What fails the one request only: status and text.
ONE_REQUEST = {
    "none_in_list": (500, r"returned None for this request"),
    "without_tensors": (500, r"model 'wrong' returned no output 'Y', which the request wants"),
    "misspelt_name": (500, r"'y' is no output of the model, which declares: Y, Z; did you mean 'Y'\?"),
    "one_of_two": (500, r"model 'wrong' returned no output 'Z', which the request wants"),
    "wrong_batch": (500, r"'Y' has shape \[2,1\], must be \[1,-1\]"),
    "wrong_rank": (500, r"'Y' has shape \[1\], must be \[1,-1\]"),
    "wrong_dtype": (500, r"'Y' has the wrong datatype: float64 \(FP64\) given, FP32 declared"),
    "error_and_tensors": (404, r"no$"),
    "error_for_one": (500, r"this one only$"),
}
# What is no fault, or is mended: Y and Z of the request that asked for it.
ANSWERED = {
    "extra_tensor": ([7], [0]),
    "sends_itself": ([1], [-1]),
    "sends_and_returns": ([1], [-1]),
    "prints_rubbish": ([1], [-1]),
    "closes_its_outputs": ([1], [-1]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    write_python_model(repository, "wrong", source("wrong_returns"), CONFIG)
    return serve_for_module(repository)


def answers(server: ServerProcess, way: str) -> list[tuple[int, object]]:
    """Return the answers to a batch of which the first request asks for `way`; X is 1, 2, 3."""
    ways = ((way, 1), ("good", 2), ("good", 3))
    found = ask_at_once(
        server, "wrong", *([tensor("WAY", "BYTES", (1, 1), name), tensor("X", "FP32", (1, 1), x)] for name, x in ways)
    )
    assert answers_of_a_good_batch(server)
    return found


def answers_of_a_good_batch(server: ServerProcess) -> bool:
    good = ask_at_once(
        server, "wrong", *([tensor("WAY", "BYTES", (1, 1), "good"), tensor("X", "FP32", (1, 1), x)] for x in (4, 5, 6))
    )
    return good == [(200, {"Y": [x], "Z": [-x]}) for x in (4, 5, 6)]


@pytest.mark.parametrize("way", WHOLE_BATCH)
def test_what_leaves_no_way_to_tell_whose_a_response_is_fails_the_whole_batch_and_says_why(server, way):
    for status, text in answers(server, way):
        assert (status, bool(re.search(WHOLE_BATCH[way], text))) == (500, True), text
        assert len(text) < 10_000


@pytest.mark.parametrize("way", ONE_REQUEST)
def test_what_is_wrong_with_one_response_fails_its_request_only(server, way):
    (status, text), *others = answers(server, way)
    expected, pattern = ONE_REQUEST[way]
    assert (status, bool(re.search(pattern, text))) == (expected, True), text
    assert others == [(200, {"Y": [2], "Z": [-2]}), (200, {"Y": [3], "Z": [-3]})]


@pytest.mark.parametrize("way", ANSWERED)
def test_what_is_no_fault_is_answered(server, way):
    y, z = ANSWERED[way]
    assert answers(server, way) == [
        (200, {"Y": y, "Z": z}),
        (200, {"Y": [2], "Z": [-2]}),
        (200, {"Y": [3], "Z": [-3]}),
    ]


def test_the_same_response_twice_is_what_the_model_said(server):
    first, second, third = answers(server, "same_object_twice")
    assert (first[0], first) == (200, second)
    assert second == third


def test_an_error_text_is_cut_at_64_KiB(server):
    (status, text), *_ = answers(server, "huge_text")
    assert (status, text[:1000]) == (500, "x" * 1000)
    assert re.search(r"x… \(\d+ characters more\)$", text)
    assert len(text) < 70_000


def test_an_output_that_isnt_declared_is_ignored_with_a_line_in_the_log(server):
    answers(server, "extra_tensor")
    wait_until(lambda: any("'Q'" in line and "[wrong wrong_0" in line for line in server.errors), what="the line")


def test_the_whole_traceback_of_an_exception_is_in_the_log_and_its_last_line_in_the_answer(server):
    (_, text), *_ = answers(server, "raises_model_exception")
    assert re.search(r"model\.py\(\d+\): raises_model_exception", text)
    wait_until(lambda: "TritonModelException: my own words" in server.log() and ", in execute" in server.log())


def test_no_worker_was_lost_on_the_way(server):
    text = requests.get(f"http://{server.metrics}/metrics", timeout=5).text
    assert "naiad_worker_restarts_total{" not in text


def test_an_execution_that_never_ends_holds_up_nobody_else_and_ends_with_the_server(tmp_path, serve):
    repository = tmp_path / "models"
    never = "import time\nclass TritonPythonModel:\n    def execute(self, requests): time.sleep(3600)\n"
    write_python_model(repository, "never", never)
    write_echo(repository)
    server = serve(repository, "--exit-timeout-secs=1")
    with pytest.raises(requests.Timeout):
        requests.post(
            f"{server.url}/v2/models/never/infer", json={"inputs": [tensor("X", "FP32", (1, 1), 1)]}, timeout=(5, 0.3)
        )
    wait_until(lambda: server.metric("nv_inference_request_failure", model="never", reason="CANCELED") == 1)
    assert ask(server, "echo", tensor("X", "FP32", (1, 1), 5)) == (200, {"Y": [5]})
    workers = psutil.Process(server.pid).children(recursive=True)
    server.stop()
    assert psutil.wait_procs(workers, 5)[1] == []
