"""Runs h2load against one model over gRPC and reads what it measured. Owns its command line and its output.

It posts one recorded call over and over on a few connections. It knows nothing of gRPC, so that the status of a call, which
comes in a trailer, is told by the size: a call that fails has no message in its answer.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.grpc.infer import MODEL_INFER, PREFIX_BYTES, frame
from bench.http_infer import Address
from bench.load import LoadPlan, LoadResult, run_program
from bench.triton_setup import Program

CONNECTIONS = 4
HEADERS = ("content-type: application/grpc", "te: trailers")
FINISHED = re.compile(r"^finished in ([0-9.]+)(us|ms|s),", re.MULTILINE)
REQUESTS = re.compile(r"^requests: \d+ total, (\d+) started, (\d+) done, (\d+) succeeded,", re.MULTILINE)
STATUSES = re.compile(r"^status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", re.MULTILINE)
TRAFFIC = re.compile(r"^traffic: .*\((\d+)\) data$", re.MULTILINE)
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A serialised ModelInferRequest, and the size of the serialised message that answers it."""

    message: bytes
    answer_bytes: int


def run_h2load(program: Program, address: Address, recorded: RecordedCall, plan: LoadPlan) -> LoadResult:
    """Call ModelInfer with `plan.concurrency` calls on their way, spread over up to 4 connections.

    Raises BenchError when any call fails.
    """
    connections = min(CONNECTIONS, plan.concurrency)
    with tempfile.TemporaryDirectory(prefix="naiad-bench-") as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(frame(recorded.message))
        arguments = ["-t1", f"-c{connections}", f"-m{plan.concurrency // connections}"]
        arguments += ["-D", str(max(round(plan.duration_s), 1)), "-d", str(body), f"--log-file={log}"]
        arguments += [word for header in HEADERS for word in ("-H", header)]
        output = run_program(program, [*arguments, f"http://{address}{MODEL_INFER}"], plan.cores)
        return parse_h2load(output, log.read_text(), recorded.answer_bytes)


def parse_h2load(output: str, log: str, answer_bytes: int) -> LoadResult:
    """Read h2load's summary and its log of calls (start, HTTP status, µs); `answer_bytes` is the size of one right answer.

    Raises BenchError when a call has another HTTP status than 2xx, or fewer bytes came than right answers have.
    """
    found = [pattern.search(output) for pattern in (FINISHED, REQUESTS, STATUSES, TRAFFIC)]
    finished, requests, statuses, traffic = found
    if finished is None or requests is None or statuses is None or traffic is None:
        raise BenchError(f"h2load printed no result: {output[-800:]}")
    started, done, succeeded = map(int, requests.groups())
    other = sum(map(int, statuses.groups()))
    if not done or done != succeeded or other:
        raise BenchError(f"of {done} calls {done - succeeded} failed, {other} have another status than 2xx: {output[-800:]}")
    data_bytes, frame_bytes = int(traffic[1]), answer_bytes + PREFIX_BYTES
    if not done * frame_bytes <= data_bytes <= started * frame_bytes:  # those cut off at the end may add to it
        raise BenchError(
            f"{done} answers of {frame_bytes} bytes came as {data_bytes} bytes: some have a grpc-status other than 0"
        )
    latencies_us = sorted(int(line.split()[2]) for line in log.splitlines())
    if len(latencies_us) < done:
        raise BenchError(f"h2load's log has {len(latencies_us)} calls of {done}")
    duration_s = float(finished[1]) * UNITS_S[finished[2]]
    return LoadResult(done / duration_s, percentile(latencies_us, 50), percentile(latencies_us, 99))


def percentile(ordered: Sequence[int], percent: int) -> float:
    """Return the value that `percent` % of the `ordered` values, of which there must be one, don't exceed."""
    return float(ordered[-(-len(ordered) * percent // 100) - 1])
