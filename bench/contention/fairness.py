"""A client with one connection beside one that floods the same model with 64: what it waits, with and without fairness.

Owns the row. Both clients are wrk, told apart by a header; Triton knows no such thing and is measured without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from bench.contention.scenarios import BATCHINGS, costly_inputs, costly_model
from bench.errors import Unavailable
from bench.http_infer import Address, Form, check_answer, make_request
from bench.load import LoadPlan, LoadResult, run_wrk
from bench.measure import WARM_UP_S, Setting
from bench.models.repository import write_repository
from bench.results import Fairness, FairnessSample, median_fairness
from bench.servers import Server, naiad_launch, serving
from bench.triton_setup import Program

CLIENT_HEADER = "x-client"
FLAG = f"--fairness-key=header:{CLIENT_HEADER}"
FLOOD_CONNECTIONS = 64
MODEL = costly_model("shared", BATCHINGS[0])


def fairness(setting: Setting) -> list[Fairness]:
    """Measure Naiad without and with fairness, and Triton, in alternating rounds; return a row for each.

    Raises Unavailable without wrk, BenchError when a server fails, answers wrongly or refuses requests.
    """
    if "wrk" not in setting.generators:
        raise Unavailable("without wrk there is no load")
    with ExitStack() as stack:
        servers: list[tuple[str, Server]] = []
        if setting.naiad is not None:
            servers.append(("off", stack.enter_context(setting.naiad("unfair", (MODEL,), ()))))
            servers.append(("by header", stack.enter_context(_fair(setting))))
        if setting.triton is not None:
            servers.append(("n/a", stack.enter_context(setting.triton("unfair", (MODEL,), ()))))
        samples = _rounds(setting, servers)
        return [Fairness(server.name, title, median_fairness(taken)) for (title, server), taken in zip(servers, samples)]


def _fair(setting: Setting) -> AbstractContextManager[Server]:
    launch = naiad_launch(write_repository(setting.folder / "naiad-fair", (MODEL,)))
    launch = replace(launch, arguments=(*launch.arguments, FLAG))
    return serving(launch, setting.folder / "naiad-fair.log")


def _rounds(setting: Setting, servers: Sequence[tuple[str, Server]]) -> list[list[FairnessSample]]:
    samples: list[list[FairnessSample]] = [[] for _ in servers]
    for number in range(setting.rounds):
        for (title, server), taken in zip(servers, samples):
            print(f"fairness, round {number + 1}: {server.name} {title}", flush=True)
            _both(setting.generators["wrk"], server.address, WARM_UP_S)
            taken.append(_both(setting.generators["wrk"], server.address, setting.duration_s))
    return samples


def _both(wrk: Program, address: Address, duration_s: float) -> FairnessSample:
    """Run both clients for the same time."""
    with ThreadPoolExecutor(2) as pool:
        flood = pool.submit(_client(wrk, address, "flood"), LoadPlan(FLOOD_CONNECTIONS, duration_s))
        small = pool.submit(_client(wrk, address, "small"), LoadPlan(1, duration_s))
        flooded, seen = flood.result(), small.result()
    return FairnessSample(flooded.requests_per_s, seen.requests_per_s, seen.p50_us, seen.p99_us)


def _client(wrk: Program, address: Address, name: str) -> Callable[[LoadPlan], LoadResult]:
    inputs = costly_inputs()
    request = make_request(MODEL.name, inputs, Form.BINARY)
    request = replace(request, headers={**request.headers, CLIENT_HEADER: name})
    check_answer(address, request, {"OUTPUT0": inputs["INPUT0"]})
    return lambda plan: run_wrk(wrk, address, request, plan)
