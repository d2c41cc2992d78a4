"""Loads one model with many sequences by wrk, and checks the sums. Owns the script and the files that it reads.

All requests are made before: each sequence has one for each way a step may start or end. wrk doesn't say which connection it
asks a request for, so two steps of one sequence may go out on different ones; they are a whole pass apart, and a step that came
out of order would be refused or make a wrong sum.
"""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

from bench.errors import BenchError
from bench.http_infer import Address, check_answer, on_the_wire
from bench.load import WRK_DONE, LoadPlan, LoadResult, parse_wrk, run_program
from bench.sequences.lives import Lives, Step, expected, make_step
from bench.triton_setup import Program

LIVES = Lives()
SENT = "WRK_SENT "
KINDS = tuple(Step(is_start, is_end) for is_start, is_end in product((False, True), repeat=2))
"""The order in which the files have the kinds of steps: a plain one, an end, a start, both."""
# The same plan as bench/sequences/lives.py. The first call of `request` is wrk's own look at what it returns: it isn't sent.
SCRIPT = (
    """
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args)
  local data, sizes = io.open(args[1], "rb"), io.open(args[2], "r")
  count, life = tonumber(args[3]), tonumber(args[4])
  kinds = {}
  for kind = 0, 3 do
    kinds[kind] = {}
    for sequence = 0, count - 1 do kinds[kind][sequence] = data:read(sizes:read("*n")) end
  end
  sent = -1
end
function request()
  local number = math.max(sent, 0)
  local sequence = number % count
  local turn = (number - sequence) / count
  local phase = (sequence + turn) % life
  local kind = 0
  if phase == life - 1 then kind = 1 end
  if turn == 0 or phase == 0 then kind = kind + 2 end
  sent = sent + 1
  return kinds[kind][sequence]
end
"""
    + WRK_DONE.replace("function done(summary, latency, requests)", "local function counted(summary, latency)")
    + f"""
function done(summary, latency, requests)
  counted(summary, latency)
  io.write(string.format("{SENT}%d\\n", threads[1]:get("sent")))
end
"""
)


def run_sequences(program: Program, address: Address, model: str, plan: LoadPlan, lives: Lives = LIVES) -> LoadResult:
    """Load `model` with these live sequences over `plan.concurrency` connections, then ask some for their sums.

    Raises BenchError when a request fails, a sum is wrong, or there was no time for all to start.
    """
    with tempfile.TemporaryDirectory(prefix="naiad-bench-") as folder:
        script, data, sizes = (Path(folder, name) for name in ("sequences.lua", "requests", "sizes"))
        script.write_text(SCRIPT)
        requests = [on_the_wire(address, make_step(model, sequence, kind)) for kind in KINDS for sequence in range(lives.count)]
        data.write_bytes(b"".join(requests))
        sizes.write_text("".join(f"{len(request)}\n" for request in requests))
        size = [f"-c{plan.concurrency}", "-t1", f"-d{max(round(plan.duration_s), 1)}s", "--timeout=10s"]
        given = [str(data), str(sizes), str(lives.count), str(lives.steps)]
        output = run_program(program, [*size, "-s", str(script), f"http://{address}", "--", *given], plan.cores)
    result = parse_wrk(output)
    check_sums(address, model, parse_sent(output, lives), lives)
    return result


def parse_sent(output: str, lives: Lives) -> int:
    """Return how many requests went out; raise BenchError when the line isn't there or it's too few."""
    line = next((line for line in output.splitlines() if line.startswith(SENT)), None)
    if line is None:
        raise BenchError(f"wrk didn't say how many requests it sent: {output[-500:]}")
    sent = int(line[len(SENT) :])
    if sent < lives.count:
        raise BenchError(f"in {sent} requests not all of {lives.count} sequences have started: take a longer --duration")
    return sent


def check_sums(address: Address, model: str, sent: int, lives: Lives) -> None:
    """Ask some sequences that are open for their sums, by a step that adds nothing; raise BenchError when one is wrong."""
    for sequence, total in lives.probes(sent).items():
        check_answer(address, make_step(model, sequence, Step(is_start=False, is_end=False), 0), expected(total))
