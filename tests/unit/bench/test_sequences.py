"""The plan of 1,000 live sequences, and the wrk script that follows it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.errors import BenchError
from bench.load import LoadPlan
from bench.models import onnx_files
from bench.models.repository import config_text, write_repository
from bench.scenarios import SEQUENCE_SCENARIOS
from bench.sequences.compare import STATEFUL, WORKER, sequence_model
from bench.sequences.lives import Lives, value_of
from bench.sequences.load import check_sums, parse_sent, run_sequences
from bench.servers import Launch, serving
from bench.triton_setup import Program
from hypothesis import given, settings
from hypothesis import strategies as st

# Keeps sums as a model of sequences does, over HTTP, and refuses a step that isn't in its place; 0 is added by probes.
SERVER = """
import http.server, json, struct, threading
sums, lock = {}, threading.Lock()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", 65536
    def do_GET(self):
        self.answer(200, b"{}", 2)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.headers["Inference-Header-Content-Length"])
        says, (value,) = json.loads(body[:size])["parameters"], struct.unpack("<i", body[size:])
        name = says["sequence_id"]
        with lock:
            if not says["sequence_start"] and name not in sums:
                return self.answer(400, b"no such sequence", 0)
            total = sums[name] = value + (0 if says["sequence_start"] else sums[name])
            if says["sequence_end"]:
                del sums[name]
        tensor = {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}
        header = json.dumps({"outputs": [tensor]}).encode()
        self.answer(200, header + struct.pack("<i", total), len(header))
    def answer(self, status, body, size):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Inference-Header-Content-Length", str(size))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print('NAIAD_LISTENING {"http": "127.0.0.1:%d"}' % server.server_port, flush=True)
server.serve_forever()
"""


LIVES = Lives(count=100, steps=20)


@settings(deadline=None)  # a busy machine is no failure
@given(sequence=st.integers(0, LIVES.count - 1), turns=st.integers(1, 4 * LIVES.steps))
def test_a_sum_is_what_the_steps_since_the_last_start_add_up_to(sequence: int, turns: int) -> None:
    total, is_open = 0, False
    for turn in range(turns):
        step = LIVES.step(sequence, turn)
        assert step.is_start or is_open
        total = value_of(sequence) + (0 if step.is_start else total)
        is_open = not step.is_end
        assert total == LIVES.sum_after(sequence, turn)


@pytest.mark.parametrize("turn", range(LIVES.steps))
def test_in_every_pass_all_sequences_stay_open_but_one_in_the_steps_of_a_life(turn: int) -> None:
    ended = sum(LIVES.step(sequence, turn).is_end for sequence in range(LIVES.count))
    assert ended == LIVES.count // LIVES.steps


@settings(deadline=None)
@given(sent=st.integers(LIVES.count, 50 * LIVES.count))
def test_sums_are_asked_of_open_sequences_whose_last_step_is_long_ago(sent: int) -> None:
    found = LIVES.probes(sent)
    assert len(found) == 8
    for sequence, total in found.items():
        turn = (sent - 1 - sequence) // LIVES.count
        assert sent - (turn * LIVES.count + sequence) > LIVES.count // 2
        assert not LIVES.step(sequence, turn).is_end
        assert total == LIVES.sum_after(sequence, turn)


def test_a_run_in_which_not_all_started_fails() -> None:
    assert parse_sent("WRK_SENT 100\n", LIVES) == 100
    with pytest.raises(BenchError, match="in 99 requests not all of 100 sequences have started"):
        parse_sent("WRK_SENT 99\n", LIVES)
    with pytest.raises(BenchError, match="didn't say"):
        parse_sent("1000 requests in 2s\n", LIVES)


def test_wrk_follows_the_plan_and_a_wrong_sum_is_seen(tmp_path: Path) -> None:
    wrk = shutil.which("wrk")
    if wrk is None:
        pytest.skip("wrk is not installed")
    launch = Launch("Sums", Program(Path(sys.executable)), ("-c", SERVER))
    with serving(launch, tmp_path / "log") as server:
        assert run_sequences(Program(Path(wrk)), server.address, "sums", LoadPlan(1, 1), LIVES).requests_per_s > 0
        with pytest.raises(BenchError, match=r"wrong answer|answers 400"):
            check_sums(server.address, "sums", 10 * LIVES.count, Lives(LIVES.count, 1000))


def test_python_models_are_told_the_sequence_and_onnx_models_the_sum_with_the_same_strategy() -> None:
    for scenario in SEQUENCE_SCENARIOS:
        told, kept = (config_text(sequence_model(scenario, way, "sums")) for way in (WORKER, STATEFUL))
        assert scenario.strategy in told
        assert scenario.strategy in kept
        assert ("CONTROL_SEQUENCE_CORRID" in told, "initial_state" in told) == (True, False)
        assert ("CONTROL_SEQUENCE_CORRID" in kept, "initial_state" in kept) == (False, True)


def test_the_onnx_models_say_what_they_should(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    write_repository(tmp_path, (sequence_model(SEQUENCE_SCENARIOS[0], STATEFUL, "sums"),))
    model = onnxruntime.InferenceSession(str(tmp_path / "sums" / "1" / "model.onnx"))
    three, four = np.full((2, 1), 3, np.int32), np.full((2, 1), 4, np.int32)
    for answer in model.run(["OUTPUT0", "STATE_OUT"], {"INPUT0": three, "STATE_IN": four}):
        np.testing.assert_array_equal(answer, np.full((2, 1), 7, np.int32))
    same = onnxruntime.InferenceSession(onnx_files.identity(3))
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(same.run(["OUTPUT0"], {"INPUT0": given})[0], given)
