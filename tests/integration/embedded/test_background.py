"""A server in the background of a program: it starts whole, ends what is in flight, leaves nothing, and changes nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from http_models import write_identity
from process_facts import facts
from served_functions import Gate, X, Y, ask_by_triton, double, process_state, reachable, row, serving, wait_pending
from waiting import wait_until

import naiad
from naiad import InferenceServerError
from naiad.errors import Code


def test_nothing_of_the_process_is_changed():
    before = process_state()
    with reachable(double):
        during = process_state()
    assert before == during == process_state()


def test_nothing_is_left():
    def use() -> None:
        with reachable(double) as server:
            ask_by_triton(server.http_address, "m", {"x": "FP32"}, x=row(1))
            server.models["m"].infer({"x": row(1)})

    def left() -> tuple[int, int]:
        gc.collect()
        now = facts(os.getpid())
        return now.descriptors, now.threads

    use()
    gc.collect()
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("naiad")])
    before = left()
    for _ in range(5):
        use()
    wait_until(lambda: left() <= before, what=f"descriptors and threads {left()} to be {before}")


def test_without_http_there_is_no_socket():
    with serving(double) as model:
        assert facts(os.getpid()).connections == 0
        assert model.infer({"x": row(2)})["y"].tolist() == [[4]]
    server = naiad.Server(http=False)
    server.bind("m", double, [X], [Y])
    with server, pytest.raises(InferenceServerError, match="no HTTP socket"):
        server.http_address  # noqa: B018


def test_two_servers_do_not_meet():
    with reachable(double) as one, reachable(lambda x: x * 3) as two:
        assert one.http_address != two.http_address
        for server, expected in ((one, 4), (two, 6)):
            assert ask_by_triton(server.http_address, "m", {"x": "FP32"}, x=row(2))["y"].tolist() == [[expected]]
            assert server.models["m"].infer({"x": row(2)})["y"].tolist() == [[expected]]
        with reachable(double) as third:
            assert third.models["m"].is_ready()
        assert one.models["m"].statistics["inference_count"] == 2
        assert requests.get(f"http://{two.http_address}/v2/health/ready", timeout=10).status_code == 200


def test_functions_and_repositories_are_served_together(tmp_path):
    write_identity(tmp_path, "echo")
    with reachable(double, options={"model_repository": tmp_path}) as server:
        assert sorted(server.models) == ["echo", "m"]
        assert server.models["echo"].infer({"X": row(1)})["Y"].tolist() == [[1]]


def test_a_name_that_the_repository_has_too_is_refused(tmp_path):
    write_identity(tmp_path, "m")
    with pytest.raises(InferenceServerError, match="model 'm' is a function and in a model repository"):
        reachable(double, options={"model_repository": tmp_path}).start()


def test_a_server_can_be_started_again():
    server = reachable(double)
    for _ in range(2):
        with server:
            assert server.models["m"].infer({"x": row(1)})["y"].tolist() == [[2]]


def test_what_is_in_flight_at_the_end_is_answered():
    gate = Gate()
    with ThreadPoolExecutor(3) as threads:
        with reachable(gate) as server:
            direct = threads.submit(server.models["m"].infer, {"x": row(1)})
            by_http = threads.submit(ask_by_triton, server.http_address, "m", {"x": "FP32"}, x=row(2))
            assert gate.began.wait(10)
            wait_pending(server, 1)
            ending = threads.submit(open_when_draining, server, gate)
        assert direct.result()["y"].tolist() == [[2]]
        assert by_http.result()["y"].tolist() == [[4]]
        assert ending.result() is Code.UNAVAILABLE


def open_when_draining(server: naiad.Server, gate: Gate) -> Code:
    """Open the gate once the server refuses new requests; return the code of the refusal."""
    model = server.models["m"]
    while (code := refusal(model).code) is Code.DEADLINE_EXCEEDED:
        pass
    gate.opened.set()
    return code


def refusal(model: naiad.ModelHandle) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as raised:
        model.infer({"x": row(3)}, timeout_s=0.01)
    return raised.value


def test_what_does_not_end_in_time_is_failed_and_not_waited_for():
    gate = Gate()
    with ThreadPoolExecutor(2) as threads:
        with reachable(gate, options={"exit_timeout_secs": 0}) as server:
            direct = threads.submit(server.models["m"].infer, {"x": row(1)})
            assert gate.began.wait(10)
        with pytest.raises(InferenceServerError, match="exit timeout has expired"):
            direct.result()
        gate.opened.set()


def test_a_server_that_has_stopped_says_so():
    server = reachable(double)
    with server:
        model = server.models["m"]
    for ask in (
        lambda: model.infer({"x": row(1)}),
        lambda: model.config,
        lambda: server.models,
        lambda: list(model.stream({})),
    ):
        with pytest.raises(InferenceServerError, match="isn't running") as raised:
            ask()
        assert raised.value.code is Code.UNAVAILABLE
    assert not model.is_ready()


def test_a_port_that_is_taken_is_an_error_and_nothing_is_left():
    with reachable(double) as server:
        port = int(server.http_address.rsplit(":", 1)[1])
        before = threading.active_count()
        with pytest.raises(InferenceServerError, match="already in use"):
            reachable(double, options={"http_port": port}).start()
        assert threading.active_count() == before


def test_a_model_that_fails_to_load_ends_the_start_unless_it_may_fail(tmp_path):
    write_identity(tmp_path, "bad", more="parameters { key: 'execute_delay_ms' value { string_value: 'x' } }")
    with pytest.raises(InferenceServerError, match=r"model 'bad' failed to load: .*execute_delay_ms"):
        reachable(double, options={"model_repository": tmp_path}).start()
    with reachable(double, options={"model_repository": tmp_path, "exit_on_error": False}) as server:
        assert list(server.models) == ["m"]
        assert not server.models["bad"].is_ready()


def test_log_options_are_the_programs_own_in_the_background():
    with pytest.raises(InferenceServerError, match="log_verbose: a server in the background writes to this program's log"):
        reachable(double, options={"log_verbose": 1}).start()


def test_log_settings_show_the_programs_logger_and_can_not_be_changed(caplog):
    caplog.set_level(logging.INFO, logger="naiad")
    with reachable(double) as server:
        url = f"http://{server.http_address}/v2/logging"
        settings = requests.get(url, timeout=10).json()
        refused = requests.post(url, json={"log_info": False}, timeout=10)
    assert (settings["log_info"], settings["log_verbose_level"]) == (True, 0)
    assert refused.status_code >= 400
    assert "which owns the log settings" in refused.json()["error"]
    assert "successfully loaded 'm'" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"http_prot": 0}, "there is no option http_prot; did you mean http_port?"),
        ({"http_port": "x"}, "http_port must be a whole number"),
        ({"http_port": 70000}, "from 0 to 65535; it is 70000"),
        ({"vertex_ai_port": 1}, "vertex_ai_port"),
        ({"in_place": "perhaps"}, "in_place must be true"),
    ],
)
def test_an_option_that_is_not_known_or_allowed_is_named(options, text):
    with pytest.raises(InferenceServerError, match=text):
        naiad.Server(**options)


def test_options_are_python_values_or_the_texts_of_flags():
    server = naiad.Server(
        http_port="0",
        metrics_port=0,
        in_place=False,
        thread_count=2,
        http_cors_origin=["https://a.example", "https://b.example"],
        backend_config=["onnxruntime,intra_op_thread_count=2", "default-max-batch-size=8"],
    )
    options = server._options
    assert (options.http_port, options.in_place, options.thread_count) == (0, False, 2)
    assert options.http_cors_origin == ("https://a.example", "https://b.example")
    assert options.backend_config["onnxruntime"] == {"intra_op_thread_count": "2"}


def test_a_notebooks_running_loop_is_no_hindrance():
    async def notebook() -> tuple[list, list]:
        with reachable(double) as server:
            model = server.models["m"]
            blocking = model.infer({"x": row(1)})["y"]
            awaited = (await model.infer_async({"x": row(2)}))["y"]
            return blocking.tolist(), awaited.tolist()

    assert asyncio.run(notebook()) == ([[2]], [[4]])


def test_an_error_in_the_block_stops_the_server_and_goes_on():
    server = reachable(double)
    with pytest.raises(KeyError), server:
        raise KeyError
    with pytest.raises(InferenceServerError, match="isn't running"):
        server.models  # noqa: B018


def test_a_program_that_forgets_to_stop_its_server_ends_all_the_same():
    code = (
        "import numpy as np, naiad\n"
        "server = naiad.Server(http=False)\n"
        "x = naiad.Tensor('x', 'FP32', (-1,))\n"
        "server.bind('m', lambda x: x, [x], [naiad.Tensor('y', 'FP32', (-1,))])\n"
        "server.start()\n"
        "print(server.models['m'].infer({'x': np.ones((1, 1), 'f4')})['y'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[1.]]\n", "")


def test_arrays_of_no_items_are_no_trouble():
    with serving(double, batching=False) as model:
        assert model.infer({"x": np.zeros(0, np.float32)})["y"].shape == (0,)
