"""What the load generators print, read into figures."""

from __future__ import annotations

import json

import pytest
from bench.errors import BenchError
from bench.load import WRK_RESULT, LoadResult, parse_perf_analyzer, parse_wrk
from hypothesis import given, settings
from hypothesis import strategies as st

FIGURES = {"requests": 5000, "duration_us": 2_000_000, "p50_us": 310, "p99_us": 900}
NO_ERRORS = {"connect": 0, "read": 0, "write": 0, "status": 0, "timeout": 0}
CSV_HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n"
)
CSV_ROW = "16,3487.25,10,200,30,40,50,60,5,3712,5000,6000,19150\n"


def wrk_output(**counts: int) -> str:
    line = WRK_RESULT + json.dumps({**FIGURES, **NO_ERRORS, **counts})
    return f"Running 2s test @ http://127.0.0.1:1/\n  5000 requests in 2.00s\n{line}\n"


def test_wrk_rate_is_requests_over_the_measured_time() -> None:
    assert parse_wrk(wrk_output()) == LoadResult(requests_per_s=2500.0, p50_us=310, p99_us=900)


@settings(deadline=None)  # a busy machine is no failure
@given(requests=st.integers(1, 10**9), duration_us=st.integers(1, 10**9))
def test_wrk_rate_times_duration_gives_the_requests_back(requests: int, duration_us: int) -> None:
    result = parse_wrk(wrk_output(requests=requests, duration_us=duration_us))
    assert result.requests_per_s * duration_us / 1e6 == pytest.approx(requests)


@pytest.mark.parametrize("kind", sorted(NO_ERRORS))
def test_one_failed_request_of_any_kind_fails_the_run(kind: str) -> None:
    with pytest.raises(BenchError, match=f"'{kind}': 1"):
        parse_wrk(wrk_output(**{kind: 1}))


def test_a_run_without_answers_fails() -> None:
    with pytest.raises(BenchError, match="none was answered"):
        parse_wrk(wrk_output(requests=0))


def test_wrk_output_without_the_script_s_line_fails() -> None:
    with pytest.raises(BenchError, match=r"printed no result: unable to connect"):
        parse_wrk("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_perf_analyzer_figures_come_from_the_columns_by_name() -> None:
    assert parse_perf_analyzer(CSV_HEADER + CSV_ROW) == LoadResult(3487.25, 3712.0, 19150.0)


@pytest.mark.parametrize(
    "table", ["", CSV_HEADER, CSV_HEADER + CSV_ROW * 2, "a,b\n1,2\n", CSV_HEADER + "16,many\n", CSV_HEADER + "16,5\n"]
)
def test_a_perf_analyzer_table_that_is_not_one_whole_line_fails(table: str) -> None:
    with pytest.raises(BenchError, match="not the table"):
        parse_perf_analyzer(table)
