"""Models that harm their own process harm neither the server nor their next request; at worst another worker comes."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
import requests
from fragile_models import Fragile, error, outputs, write_fragile
from process_facts import is_alive
from python_models import write_echo, write_python_model
from server_process import ServerProcess
from waiting import wait_until

MIB = 1 << 20
ARENA_MB = 8
SLOW_IMPORT = """
import os, time
while not os.path.exists(os.path.join(os.path.dirname(__file__), "..", "go")):
    time.sleep(0.01)
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy() * 2)]) for request in requests]
"""

# What a model does, and what its answer is to X = 1.
HARMLESS = {
    "print_much": 2,
    "write_rubbish": 2,
    "fork": 2,
    "fork_and_return": 2,
    "run_a_program": 42,
    "fork_a_pool": 6,
    "spawn_a_process": 0,
    "change_directory": 2,
    "break_numpy": 2,
    "handle_signals": 2,
    "set_an_alarm": 2,
    "exit_in_a_thread": 2,
    "raise_in_a_thread": 2,
    "change_input": 2,
    "close_output": 2,
}
# What a model does, and what its error says; its worker lives on.
RAISING = {
    "recurse": "RecursionError: maximum recursion depth exceeded",
    "want_too_much_memory": "MemoryError: Unable to allocate",
    "exit": "SystemExit: 3",
}
# What a model does to its own process, and how that ends.
DEADLY = {
    "die": "was killed by SIGKILL",
    "crash": "was killed by SIGSEGV",
    "exit_at_once": "exited with code 3",
    "close_descriptors": "exited with code 1",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("models")
    folders = [write_fragile(repository, name) for name in ("fragile", "b", "c", "d")]
    write_echo(repository)
    server = serve_for_module(repository, "--worker-stop-timeout-secs=1", f"--worker-arena-limit-mb={ARENA_MB}")
    return {folder.name: Fragile(server, folder) for folder in folders}


@pytest.fixture
def fragile(models) -> Fragile:
    """The model with a worker that nothing was done to, so that one test's harm isn't the next one's."""
    model = models["fragile"]
    model.ask(0, do="exit_at_once")
    wait_until(model.is_ready)
    return model


@pytest.fixture
def serve_early():
    """Start a server whose models may still be loading; it ends with the test."""
    servers: list[ServerProcess] = []

    def start(*arguments):
        servers.append(ServerProcess(*arguments).wait_listening())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("way", HARMLESS)
def test_a_model_may_do_it(fragile, way):
    deaths = fragile.restarts()
    assert outputs(fragile.ask(1, do=way)) == [HARMLESS[way]]
    for value in range(3):
        assert fragile.answers(value)
    assert fragile.restarts() == deaths


@pytest.mark.parametrize("way", RAISING)
def test_an_exception_of_any_kind_is_an_answer(fragile, way):
    deaths = fragile.restarts()
    answer = fragile.ask(1, do=way)
    assert (answer.status_code, RAISING[way] in error(answer)) == (500, True)
    assert fragile.answers()
    assert fragile.restarts() == deaths


@pytest.mark.parametrize("way", DEADLY)
def test_an_end_of_the_process_is_told_with_its_model_and_way(fragile, way):
    deaths = fragile.restarts()
    answer = fragile.ask(1, do=way)
    assert answer.status_code == 503
    assert "the worker process of model 'fragile' (fragile_0_0), pid " in error(answer)
    assert DEADLY[way] in error(answer)
    assert fragile.answers()
    assert fragile.restarts() == deaths + 1


def test_a_flood_of_output_reaches_the_log_in_part_and_the_rest_is_counted(fragile):
    assert fragile.answers()
    assert outputs(fragile.ask(1, do="print_much")) == [2]
    wait_until(lambda: any("more lines" in line and "fragile_0_0" in line for line in fragile.server.errors))


def test_a_forked_child_frees_no_memory_of_its_parent(fragile):
    rows = [np.full(20_000, value, np.float32) for value in (1, 2)]
    for row in rows:
        assert fragile.ask(*row.tolist(), do="fork_and_drop_inputs").status_code == 200
    for value in range(5):
        assert fragile.ask(*[float(value)] * 20_000).status_code == 200
    assert outputs(fragile.ask(0, do="read_kept")) == [20_000, 40_000]


def test_a_child_that_a_model_left_behind_ends_with_the_worker(fragile):
    child = int(outputs(fragile.ask(1, do="leave_a_child"))[0])
    assert is_alive(child)
    assert fragile.answers()
    fragile.ask(1, do="exit_at_once")
    wait_until(lambda: not is_alive(child))


def test_an_array_over_a_mapped_file_is_an_output_like_any(fragile):
    assert outputs(fragile.ask(1, do="answer_mapped_memory")) == [5, 5, 5, 5]


def test_a_model_that_keeps_its_inputs_for_ever_is_replaced_when_the_arena_is_full(fragile):
    values = [1.0] * (MIB // 4)
    first = fragile.worker()
    for _ in range(2 * ARENA_MB):
        assert fragile.ask(*values, do="keep_inputs").status_code == 200
    assert not is_alive(first)
    why = "is replaced: its model keeps the inputs of requests that it has answered"
    assert any(why in line for line in fragile.server.errors)


def test_inputs_that_are_let_go_in_time_cost_no_worker(fragile):
    values = [1.0] * (MIB // 4)
    first = fragile.worker()
    for _ in range(4):
        for way in ("keep_inputs", "keep_inputs", "keep_inputs", "let_go"):
            assert fragile.ask(*values, do=way).status_code == 200
    assert fragile.worker() == first


def test_inputs_that_never_fit_are_refused_with_the_limit(fragile):
    answer = fragile.ask(*[1.0] * (ARENA_MB * MIB // 4 + 1))
    assert (answer.status_code, "the inputs of this batch of model 'fragile' don't fit" in error(answer)) == (503, True)
    assert "--worker-arena-limit-mb" in error(answer)
    assert fragile.answers()


def test_sixty_four_threads_may_call_a_model_at_once(fragile):
    assert outputs(fragile.ask(1, do="call_often_at_once")) == [float(index) for index in range(64)]


def test_calls_may_go_through_a_chain_of_models(models):
    chain = {"its_do": "call", "its_model": "c", "its_its_do": "call", "its_its_model": "d", "its_its_its_do": "pid"}
    assert outputs(models["fragile"].ask(1, do="call", model="b", **chain)) == [models["d"].worker()]


def test_a_chain_that_leads_back_is_an_error_and_not_a_hang(models):
    answer = models["b"].ask(1, do="call", model="c", its_do="call", its_model="b")
    assert (answer.status_code, "would wait for ever" in error(answer)) == (500, True)
    assert models["b"].answers()
    assert models["c"].answers()


def test_a_model_that_imports_for_long_holds_up_no_other(tmp_path, serve_early):
    folder = write_fragile(tmp_path)
    slow = write_python_model(tmp_path, "slow", SLOW_IMPORT)
    server = serve_early(tmp_path)
    model = Fragile(server, folder)
    wait_until(model.is_ready)
    for value in range(20):
        assert model.answers(value)
    assert not Fragile(server, slow).is_ready()
    (slow / "go").touch()
    server.wait_ready()
    assert Fragile(server, slow).answers()


@pytest.mark.parametrize("way", ["start_an_endless_thread", "handle_signals", "leave_a_child"])
def test_a_server_stops_whatever_its_model_has_started(tmp_path, serve, way):
    folder = write_fragile(tmp_path)
    server = serve(tmp_path, "--worker-stop-timeout-secs=0.5")
    model = Fragile(server, folder)
    model.ask(1, do=way)
    worker = model.worker()
    assert server.stop(signal.SIGTERM) == 0
    assert model.note("finalizing") is not None
    assert not is_alive(worker)


def test_other_models_cant_be_called_in_finalize_which_says_so(tmp_path, serve):
    folder = write_fragile(tmp_path)
    write_echo(tmp_path)
    server = serve(tmp_path)
    model = Fragile(server, folder)
    model.put("call_in_finalize")
    assert server.stop() == 0
    assert "not in initialize or finalize" in (model.note("finalized") or "")


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_an_answer_of_half_a_gigabyte_arrives(tmp_path, serve):
    folder = write_fragile(tmp_path)
    server = serve(tmp_path)
    count = 500 * MIB // 4
    head = json.dumps(
        {
            "inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}],
            "parameters": {"do": "answer_much", "count": count, "binary_data_output": True},
        }
    )
    for _ in range(2):
        answer = requests.post(f"{server.url}/v2/models/{folder.name}/infer", data=head, timeout=60)
        assert answer.status_code == 200
        data = answer.content[int(answer.headers["Inference-Header-Content-Length"]) :]
        assert (np.frombuffer(data, np.float32) == 3).sum() == count
    assert Fragile(server, folder).answers()
