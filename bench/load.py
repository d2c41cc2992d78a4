"""Runs a load generator against one model and reads what it measured. Owns the command lines and outputs of wrk and
perf_analyzer; h2load, which only gRPC needs, is in bench/grpc.

wrk posts one recorded request over and over; perf_analyzer makes its own requests and reads metadata, config and statistics
first, so that it checks the server as well. Both run in a process of their own and close the loop: each connection sends its
next request when the answer to the last one has arrived.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.http_infer import Address, InferRequest
from bench.servers import bound_to
from bench.triton_setup import Program

WRK_RESULT = "WRK_RESULT "
# What wrk counted, as one line of JSON when it is done.
WRK_DONE = """
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'WRK_RESULT {"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, ' ..
    '"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
"""
# A request as Lua reads it from files.
WRK_SCRIPT = (
    """
function init(args)
  wrk.method = "POST"
  wrk.body = io.open(args[1], "rb"):read("*a")
  for line in io.lines(args[2]) do
    local name, value = line:match("^([^:]+): (.*)$")
    wrk.headers[name] = value
  end
end
"""
    + WRK_DONE
)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a client saw in one timed run."""

    requests_per_s: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How hard and how long: `cores` binds the generator to these cores, if any are named."""

    concurrency: int
    duration_s: float
    cores: tuple[int, ...] = ()


def run_wrk(program: Program, address: Address, request: InferRequest, plan: LoadPlan) -> LoadResult:
    """Post `request` from one thread over `plan.concurrency` connections; raise BenchError when any request fails."""
    with tempfile.TemporaryDirectory(prefix="naiad-bench-") as folder:
        script, body, headers = (Path(folder, name) for name in ("post.lua", "body", "headers"))
        script.write_text(WRK_SCRIPT)
        body.write_bytes(request.body)
        headers.write_text("".join(f"{name}: {value}\n" for name, value in request.headers.items()))
        size = [f"-c{plan.concurrency}", "-t1", f"-d{max(round(plan.duration_s), 1)}s", "--timeout=10s"]
        url = f"http://{address}{request.path}"
        return parse_wrk(run_program(program, [*size, "-s", str(script), url, "--", str(body), str(headers)], plan.cores))


def parse_wrk(output: str) -> LoadResult:
    """Read the line that the script prints; raise BenchError when it isn't there, or when a request failed.

    wrk counts statuses from 400 on as errors; neither server redirects.
    """
    line = next((line for line in output.splitlines() if line.startswith(WRK_RESULT)), None)
    if line is None:
        raise BenchError(f"wrk printed no result: {output[-500:]}")
    counts: Mapping[str, int] = json.loads(line[len(WRK_RESULT) :])
    failed = {kind: counts[kind] for kind in ("connect", "read", "write", "status", "timeout") if counts[kind]}
    if failed or not counts["requests"]:
        raise BenchError(f"of {counts['requests']} requests some failed: {failed or 'none was answered'}")
    return LoadResult(counts["requests"] * 1e6 / counts["duration_us"], counts["p50_us"], counts["p99_us"])


def run_perf_analyzer(program: Program, address: Address, model: str, plan: LoadPlan, protocol: str = "http") -> LoadResult:
    """Load `model` over "http" or "grpc", as `protocol` says; raise BenchError when it fails.

    Three windows make up the duration, their mean is the result.

    The threshold of stability is out of reach, so that a noisy machine gets a figure too: the rounds show how it varies.
    """
    with tempfile.TemporaryDirectory(prefix="naiad-bench-") as folder:
        table = Path(folder, "table.csv")
        arguments = ["-m", model, "-u", str(address), "-i", protocol, f"--concurrency-range={plan.concurrency}"]
        arguments += [f"--measurement-interval={max(round(plan.duration_s * 1000 / 3), 500)}", "--max-trials=3"]
        output = run_program(program, [*arguments, "--stability-percentage=10000", "-f", str(table)], plan.cores)
        if not table.exists():
            raise BenchError(f"perf_analyzer wrote no table: {output[-500:]}")
        return parse_perf_analyzer(table.read_text())


def parse_perf_analyzer(table: str) -> LoadResult:
    """Read the CSV with one line a concurrency, of which there must be one; raise BenchError when it isn't that."""
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(table)))
    try:
        (row,) = rows
        return LoadResult(float(row["Inferences/Second"]), float(row["p50 latency"]), float(row["p99 latency"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"not the table of perf_analyzer that was expected: {table[:500]!r} ({error})") from error


def run_program(program: Program, arguments: Sequence[str], cores: Sequence[int]) -> str:
    """Run a load generator and return what it printed; raise BenchError when it fails."""
    command = [*bound_to(cores), str(program.path), *arguments]
    done = subprocess.run(command, env={**os.environ, **program.environment}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{program.path.name} ended with code {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout
