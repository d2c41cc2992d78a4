"""Weighs what idle gRPC connections add to a server's memory. Owns the connections, each of which has answered one call."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.errors import BenchError
from bench.grpc.http2 import Connection
from bench.grpc.infer import SERVER_LIVE, frame
from bench.measure import Setting
from bench.results import Idle, IdleSample, median_idle
from bench.scenarios import IDENTITY, IDLE, IDLE_CONNECTIONS, VARIANTS, naiad_identity, triton_identity
from bench.servers import Server

SPARE_FILES = 500


def idle_growth(setting: Setting, connections: int = IDLE_CONNECTIONS) -> list[Idle]:
    """Start each server afresh every round, open the connections, and compare its memory; return a row for each server.

    A server that doesn't listen for gRPC has no row. Raises BenchError when a connection fails.
    """
    subjects = (
        ("Naiad", setting.naiad, naiad_identity(IDENTITY, VARIANTS[0])),
        ("Triton", setting.triton, triton_identity(IDENTITY)),
    )
    samples: dict[str, list[IdleSample]] = {}
    with _open_files(connections + SPARE_FILES):
        for number in range(setting.rounds):
            for name, starter, model in subjects:
                if starter is None:
                    continue
                print(f"{IDLE}, round {number + 1}: {name}", flush=True)
                with starter("idle", (model,), ()) as server:
                    if server.grpc is not None:
                        samples.setdefault(name, []).append(_weigh(server, connections))
    return [Idle(name, connections, median_idle(taken)) for name, taken in samples.items()]


def _weigh(server: Server, connections: int) -> IdleSample:
    with ExitStack() as stack:
        _open(server, stack)  # what the first connection brings in is no growth
        before_bytes, _ = server.memory_bytes()
        for _ in range(connections):
            _open(server, stack)
        after_bytes, _ = server.memory_bytes()
    return IdleSample(before_bytes, after_bytes - before_bytes)


def _open(server: Server, stack: ExitStack) -> None:
    connection = Connection(server.grpc_address)
    stack.callback(connection.close)
    failure = connection.call(SERVER_LIVE, frame(b"")).failure
    if failure:
        raise BenchError(f"{server.name}: ServerLive answers {failure}")


@contextmanager
def _open_files(count: int) -> Iterator[None]:
    """Let this process and the servers it starts open `count` files; raise BenchError when the machine doesn't allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if soft != resource.RLIM_INFINITY and soft < count:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        yield
    except ValueError as error:
        raise BenchError(f"{count} open files are needed, the limit is {hard} (ulimit -n): {error}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
