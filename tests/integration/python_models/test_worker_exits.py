"""A model whose process ends: who asked is told at once, a new one starts by itself, and readiness tells the truth."""

from __future__ import annotations

import re
import threading
import time

import psutil
import pytest
import requests
from python_models import write_echo, write_python_model
from python_models.batched import ask, tensor
from server_process import ServerProcess
from waiting import wait_until

FRAGILE = """
import os
import signal
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def answer(self, x):
        if x.flat[0] == 666:
            os._exit(0)
        if x.flat[0] == 667:
            os.kill(os.getpid(), signal.SIGSEGV)
        if x.flat[0] == 0:
            x = np.full((1, 1), os.getpid(), np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
EXITING = """
import os
class TritonPythonModel:
    def initialize(self, args):
        with open(args["model_repository"] + "/starts", "a") as starts:
            starts.write("x")
        os._exit(7)
    def execute(self, requests):
        return []
"""
REASONS = {666: "exited with code 0", 667: "was killed by SIGSEGV"}


def x(value: float) -> dict[str, object]:
    return tensor("X", "FP32", (1, 1), value)


@pytest.fixture
def server(tmp_path, serve) -> ServerProcess:
    repository = tmp_path / "models"
    write_python_model(repository, "fragile", FRAGILE)
    write_echo(repository)
    return serve(repository)


def status(server: ServerProcess, path: str) -> int:
    return requests.get(f"{server.url}/v2/{path}", timeout=5).status_code


def worker_pid(server: ServerProcess) -> int:
    return int(ask(server, "fragile", x(0))[1]["Y"][0])


@pytest.mark.parametrize("value", REASONS)
def test_who_asked_is_told_at_once_with_the_models_name_and_how_its_process_ended(server, value):
    code, text = ask(server, "fragile", x(value))
    assert (code in (500, 503), REASONS[value] in text, "'fragile'" in text) == (True, True, True), text


def test_a_new_worker_starts_by_itself_and_everything_is_ready_again(server):
    before = worker_pid(server)
    ask(server, "fragile", x(666))
    wait_until(lambda: ask(server, "fragile", x(1)) == (200, {"Y": [1]}), what="a good answer")
    assert worker_pid(server) != before
    assert [status(server, path) for path in ("models/fragile/ready", "health/ready")] == [200, 200]
    assert server.metric("naiad_worker_restarts_total", model="fragile", reason="exit") == 1


def test_while_no_worker_is_up_model_and_server_arent_ready(server):
    for _ in range(4):
        ask(server, "fragile", x(666))
    wait_until(lambda: status(server, "models/fragile/ready") == 503, what="not ready")
    assert status(server, "health/ready") == 503
    assert (status(server, "models/echo/ready"), status(server, "health/live")) == (200, 200)
    wait_until(lambda: status(server, "models/fragile/ready") == 200, what="ready again")
    assert status(server, "health/ready") == 200


def test_deaths_in_a_row_make_growing_pauses_others_are_served_and_no_zombie_stays(server):
    done = threading.Event()
    others: list[object] = []

    def ask_echo() -> None:
        while not done.is_set():
            others.append(ask(server, "echo", x(5)))

    asking = threading.Thread(target=ask_echo)
    asking.start()
    deaths: list[float] = []
    try:
        for _ in range(5):
            wait_until(lambda: status(server, "models/fragile/ready") == 200, what="ready")
            code, text = ask(server, "fragile", x(666))
            assert (code >= 500, "exited with code 0" in text) == (True, True), text
            deaths.append(time.monotonic())
    finally:
        done.set()
        asking.join()
    assert deaths[-1] - deaths[-2] >= 0.7, deaths
    assert others
    assert all(answer == (200, {"Y": [5]}) for answer in others)
    wait_until(lambda: ask(server, "fragile", x(1)) == (200, {"Y": [1]}), what="a good answer")
    children = psutil.Process(server.pid).children(recursive=True)
    assert [child for child in children if child.status() == psutil.STATUS_ZOMBIE] == []


def test_a_good_batch_resets_the_pause(tmp_path, serve):
    """So requests wait for the next worker each time; for one that starts in more than a second they wouldn't."""
    write_python_model(tmp_path / "models", "fragile", FRAGILE)
    server = serve(tmp_path / "models", "--worker-restart-delay-secs=0.6")
    for _ in range(2):
        ask(server, "fragile", x(666))
        assert ask(server, "fragile", x(1)) == (200, {"Y": [1]})
    for _ in range(2):
        ask(server, "fragile", x(666))
    assert ask(server, "fragile", x(1))[0] == 503


def test_a_model_whose_initialize_ends_the_process_fails_to_load_with_the_code_and_is_not_started_again(tmp_path):
    folder = write_python_model(tmp_path / "models", "exiting", EXITING)
    server = ServerProcess(tmp_path / "models")
    assert server.wait() == 1
    assert re.search(r"'exiting'.*exited with code 7", server.log())
    assert (folder / "starts").read_text() == "x"
