"""Open-loop loads: the traces, the client that follows one, and what its answers add up to."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from bench.contention.client import LOST, Client
from bench.contention.compare import Answers, follow, sample_of
from bench.contention.scenarios import (
    ADAPTIVE_SCENARIOS,
    BATCHINGS,
    LOAD_FACTORS,
    OVERLOAD,
    WITH_TIMEOUT,
    costly_model,
    overload_scenario,
)
from bench.contention.traces import bursts, constant, poisson
from bench.errors import BenchError
from bench.http_infer import InferRequest, on_the_wire
from bench.models.repository import config_text
from bench.servers import Launch, serving
from bench.triton_setup import Program

# Answers request number N, counted over all connections, by the Nth letter of the path, from the first again after the last:
# o 200, r 503, x hangs up. Answers come in two pieces.
SERVER = """
import http.server, itertools
numbers = itertools.count()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(200)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        plan = self.path[1:]
        letter = plan[next(numbers) % len(plan)]
        if letter == "x":
            self.close_connection = True
            return
        self.answer({"o": 200, "r": 503}[letter])
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"he")
        self.wfile.write(b"llo")
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer.request_queue_size = 300  # as many connections as the client opens, at once
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print('NAIAD_LISTENING {"http": "127.0.0.1:%d"}' % server.server_port, flush=True)
server.serve_forever()
"""
LAUNCH = Launch("Letters", Program(Path(sys.executable)), ("-c", SERVER))


@pytest.mark.parametrize("trace", [constant, poisson, bursts])
def test_a_trace_has_its_rate_in_order_within_its_duration_and_is_the_same_every_time(trace) -> None:
    arrivals = trace(400, 5.0)
    assert len(arrivals) == pytest.approx(2000, rel=0.1)
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[0] >= 0
    assert arrivals[-1] < 5
    np.testing.assert_array_equal(arrivals, trace(400, 5.0))


def test_constant_gaps_are_equal_and_bursts_come_at_one_moment() -> None:
    np.testing.assert_allclose(np.diff(constant(100, 1.0)), 0.01)
    moments, sizes = np.unique(bursts(160, 1.0, 16), return_counts=True)
    assert (len(moments), set(sizes)) == (10, {16})


def test_poisson_gaps_vary_as_much_as_they_last() -> None:
    gaps = np.diff(poisson(1000, 20.0))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_each_moment_of_a_trace_gets_its_answer_from_a_client_process(tmp_path: Path) -> None:
    with serving(LAUNCH, tmp_path / "log") as server:
        answers = follow(tmp_path, server.address, InferRequest("/oor", {}, b"body"), constant(200, 0.15))
    assert sorted(answers.statuses) == [200] * 20 + [503] * 10
    assert (answers.latencies > answers.lags).all()
    assert (answers.lags >= 0).all()


def test_a_request_without_a_free_connection_waits_and_a_connection_that_is_hung_up_is_replaced(tmp_path: Path) -> None:
    with serving(LAUNCH, tmp_path / "log") as server:
        address = server.address
        client = Client((address.host, address.port), on_the_wire(address, InferRequest("/oxo", {}, b"")), np.zeros(6), 1)
        client.run()
        client.close()
    assert list(client.statuses) == [200, LOST, 200, 200, LOST, 200]
    assert (np.diff(client.lags) > 0).all()
    assert (client.lags[1:] >= client.latencies[:-1]).all()


def test_a_client_without_a_server_fails_the_run(tmp_path: Path) -> None:
    with serving(LAUNCH, tmp_path / "log") as server:
        address = server.address
    with pytest.raises(BenchError, match=r"(?s)open-loop client ended with code 1.*refused"):
        follow(tmp_path, address, InferRequest("/o", {}, b""), constant(10, 1.0))


def test_goodput_counts_answers_in_time_latencies_all_answers_and_refusals_stand_apart() -> None:
    latencies, statuses = np.array([0.010, 0.030, 0.060, 0.001]), np.array([200, 200, 200, 503])
    sample = sample_of(Answers(latencies, statuses, np.zeros(4)), duration_s=2.0, deadline_ms=50, batch_size=1.5)
    assert (sample.offered_per_s, sample.goodput_per_s, sample.batch_size) == (2.0, 1.0, 1.5)
    assert sample.p50_us == pytest.approx(30_000)
    assert (sample.refused_share, sample.refusal_p50_us) == (0.25, pytest.approx(1000))


@pytest.mark.parametrize("statuses", [[200, LOST], [200, 400], [503, 503]])
def test_a_lost_or_wrong_answer_or_none_that_is_good_fails_the_run(statuses: list[int]) -> None:
    answers = Answers(np.array([0.01, 0.01]), np.array(statuses), np.zeros(2))
    with pytest.raises(BenchError, match="have these statuses"):
        sample_of(answers, 1.0, 50, 1.0)


def test_scenarios_have_names_of_their_own_and_the_last_load_is_the_one_that_is_asked_for() -> None:
    names = [each.name for each in ADAPTIVE_SCENARIOS] + [overload_scenario(factor).name for factor in LOAD_FACTORS]
    assert len(set(names)) == len(names)
    assert names[-1] == OVERLOAD
    assert len(overload_scenario(3).arrivals(2.0)) == pytest.approx(3000, rel=0.1)


def test_the_settings_stand_in_dynamic_batching() -> None:
    assert "dynamic_batching {  }" in config_text(costly_model("m", BATCHINGS[0]))
    assert "default_timeout_microseconds: 100000 timeout_action: REJECT" in config_text(costly_model("m", WITH_TIMEOUT))
    assert sum(each.on_triton for each in BATCHINGS) == 1
