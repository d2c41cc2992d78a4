"""Starting, watching and stopping a server, tried on a small one that speaks just enough HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from bench.errors import BenchError
from bench.http_infer import Address, Form, InferRequest, check_answer, counts, exchange, make_request
from bench.scenarios import IDENTITY
from bench.servers import Launch, serving
from bench.triton_setup import Program


def test_a_server_is_measured_with_its_children_and_nothing_of_it_is_left_behind(
    tmp_path: Path, small_launch_with_child: Launch
) -> None:
    with serving(small_launch_with_child, tmp_path / "log") as server:
        family = [server.process, *server.process.children()]
        assert len(family) == 2
        pss_bytes, rss_bytes = server.memory_bytes()
        assert sum(member.memory_info().rss for member in family) == pytest.approx(rss_bytes, rel=0.1)
        assert 0 < pss_bytes <= rss_bytes
        assert server.cpu_s() > 0
        assert server.ready_s > 0
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)
    with pytest.raises(BenchError, match=r"Small: its process \d+ has ended"):
        server.cpu_s()


def test_a_failure_while_it_serves_stops_the_server_too(tmp_path: Path, small_launch: Launch) -> None:
    def fail_while_serving() -> None:
        with serving(small_launch, tmp_path / "log") as server:
            seen.append(server.process)
            raise KeyboardInterrupt

    seen: list[psutil.Process] = []
    with pytest.raises(KeyboardInterrupt):
        fail_while_serving()
    assert not seen[0].is_running()


def test_a_server_that_ends_before_it_is_ready_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = Launch("Small", Program(Path(sys.executable)), ("-c", "print('no such model'); raise SystemExit(3)"))
    with (
        pytest.raises(BenchError, match=r"(?s)Small ended with code 3 before it was ready.*no such model"),
        serving(failing, tmp_path / "log"),
    ):
        pytest.fail("it counted as ready")


def test_answers_are_compared_and_statistics_summed_over_versions(tmp_path: Path, small_launch: Launch) -> None:
    inputs = IDENTITY.inputs()
    right = {"OUTPUT0": inputs["INPUT0"]}
    with serving(small_launch, tmp_path / "log") as server:
        check_answer(server.address, make_request("m", inputs, Form.JSON), right)
        assert counts(server.address, "m") == (2, 2)
        with pytest.raises(BenchError, match="wrong answer in output 'OUTPUT0'"):
            check_answer(server.address, make_request("m", inputs, Form.JSON), {"OUTPUT0": inputs["INPUT0"] + 1})
        with pytest.raises(BenchError, match="wrong answer in output 'OTHER'"):
            check_answer(server.address, make_request("m", inputs, Form.JSON), {"OTHER": inputs["INPUT0"]})
        with pytest.raises(BenchError, match="answers 404"):
            check_answer(server.address, make_request("absent", inputs, Form.JSON), right)
        with pytest.raises(BenchError, match="answer 404"):
            counts(server.address, "absent")
    with pytest.raises(BenchError, match="no answer"):
        counts(server.address, "m")
    with pytest.raises(OSError, match="refused"):
        exchange(Address("127.0.0.1", server.address.port), "GET", InferRequest("/", {}, b""))
