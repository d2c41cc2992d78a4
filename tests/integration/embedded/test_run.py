"""A program that serves until it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from served_functions import ask_by_triton, double, process_state, reachable, row
from waiting import wait_until

PROGRAM = """
import numpy as np
import naiad

@naiad.model_function([naiad.Tensor("x", np.float32, (-1,))], [naiad.Tensor("y", np.float32, (-1,))])
def double(x):
    return x * 2

naiad.serve(double, http_port=0, grpc_port=0, metrics_port=0)
print("after")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_serves_until_a_signal_and_goes_on(number):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            address = ""
            for line in process.stdout:
                if line.startswith("NAIAD_LISTENING "):
                    address = json.loads(line.split(" ", 1)[1])["http"]
                if line.startswith("try "):
                    break
            assert ask_by_triton(address, "double", {"x": "FP32"}, x=row(1, 2))["y"].tolist() == [[2, 4]]
        finally:
            process.send_signal(number)
        output, errors = process.communicate(timeout=15)
    assert (process.returncode, output) == (0, "after\n"), errors
    assert "stopping" in errors
    assert "Traceback" not in errors


def test_an_interrupt_ends_run_and_all_is_as_it_was(capsys):
    before = process_state()
    server = reachable(double)
    found = []

    def use_then_interrupt() -> None:
        try:
            wait_until(lambda: server._running is not None)
            found.append(ask_by_triton(server.http_address, "m", {"x": "FP32"}, x=row(3))["y"].tolist())
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    using = threading.Thread(target=use_then_interrupt)
    using.start()
    server.run()
    using.join()
    assert found == [[[6]]]
    assert process_state() == before
    assert "NAIAD_READY" in capsys.readouterr().out


def test_run_on_another_thread_ends_by_stop():
    server = reachable(double)
    running = threading.Thread(target=server.run)
    running.start()
    wait_until(lambda: server._running is not None)
    assert server.models["m"].infer({"x": row(1)})["y"].tolist() == [[2]]
    server.stop()
    running.join(10)
    assert not running.is_alive()
