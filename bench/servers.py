"""Starts a server on ports that nobody uses, waits until it is ready, reads what it uses of the machine, and stops it.

Owns the processes: each server is the leader of a session of its own (^C in the terminal reaches only the benchmark, which
then stops it by its pid), and its children are counted with it. Doesn't own what is sent to it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from bench.errors import BenchError, Unavailable
from bench.http_infer import Address, InferRequest, exchange
from bench.triton_setup import Program

LISTENING = "NAIAD_LISTENING "
CACHE = "--cache-config=local,size=1048576"
"""For the models that have their answers kept; the others know nothing of it."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
CHILD_TIMEOUT_S = 1.0
EXIT_TIMEOUT_S = 3
"""How long Triton may wait for sequences that nobody has ended, when it stops."""
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one server. The ports are 0 when the server takes free ones and says which on its standard output."""

    name: str
    program: Program
    arguments: tuple[str, ...]
    port: int = 0
    grpc_port: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """One running server that was seen ready. `ready_s` is the time from spawning it to the first 200 on /v2/health/ready;
    `grpc` is None when it doesn't serve gRPC.

    Its figures raise BenchError when one of its processes has ended: what that one used is lost.
    """

    name: str
    address: Address
    process: psutil.Process
    ready_s: float
    grpc: Address | None = None

    @property
    def grpc_address(self) -> Address:
        """Where the server listens for gRPC; raise BenchError when it doesn't."""
        if self.grpc is None:
            raise BenchError(f"{self.name} doesn't listen for gRPC")
        return self.grpc

    def cpu_s(self) -> float:
        """Return the CPU seconds that the server and its children have used so far."""
        with self._all_alive():
            return sum(times.user + times.system for times in (member.cpu_times() for member in self._members()))

    def memory_bytes(self) -> tuple[int, int]:
        """Return the resident memory of server and children: PSS, where a shared page counts by its share, and RSS."""
        with self._all_alive():
            infos = [member.memory_full_info() for member in self._members()]
        return sum(info.pss for info in infos), sum(info.rss for info in infos)

    def descriptors(self) -> int:
        """Return how many descriptors the server and its children have open."""
        with self._all_alive():
            return sum(member.num_fds() for member in self._members())

    @contextmanager
    def _all_alive(self) -> Iterator[None]:
        try:
            yield
        except psutil.NoSuchProcess as error:
            raise BenchError(f"{self.name}: its process {error.pid} has ended") from error

    def _members(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def naiad_launch(repository: Path) -> Launch:
    """Return how to start this checkout's Naiad; raise Unavailable when the command isn't installed."""
    path = Path(sys.executable).parent / "naiad"
    if not path.exists():
        raise Unavailable(f"{path} doesn't exist: `make install`")
    flags = [CACHE, "--http-port=0", "--metrics-port=0", *(["--grpc-port=0"] if serves_grpc(path) else [])]
    return Launch("Naiad", Program(path), ("serve", str(repository), *flags))


@cache
def serves_grpc(path: Path) -> bool:
    """Return whether the command `naiad` at `path` has a port for gRPC: its help names it."""
    return "--grpc-port" in subprocess.run([path, "serve", "--help"], capture_output=True, text=True, check=False).stdout


def triton_launch(program: Program, repository: Path) -> Launch:
    """Return how to start the C++ Triton. It can't choose its ports itself, so free ones are looked for here.

    Models are loaded one at a time, since this release now and then crashes when several load at once.
    """
    http_port, grpc_port, metrics_port = _free_ports(3)
    flags = (
        f"--model-repository={repository}",
        "--http-address=127.0.0.1",
        f"--http-port={http_port}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        "--allow-gpu-metrics=false",
        "--model-load-thread-count=1",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        CACHE,
    )
    return Launch("Triton", program, program.arguments + flags, http_port, grpc_port)


@contextmanager
def serving(launch: Launch, log_path: Path, cores: Sequence[int] = ()) -> Iterator[Server]:
    """Run the server until the block ends; its output goes to `log_path`. `cores` binds it to these cores, if any are named.

    Raises BenchError, with the end of the log, when it doesn't get ready within a minute.
    """
    program = launch.program
    command = [*bound_to(cores), str(program.path), *launch.arguments]
    with ExitStack() as stack:
        log = stack.enter_context(log_path.open("wb"))
        started = time.monotonic()
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=program.directory,
            env={**os.environ, **program.environment},
            start_new_session=True,
        )
        stack.callback(_stop, popen)
        try:
            address = _wait_ready(popen, launch, log_path, started + START_TIMEOUT_S)
        except BenchError as error:
            raise BenchError(f"{launch.name} {error}; the end of {log_path}:\n{_tail(log_path)}") from error
        ready_s = time.monotonic() - started
        grpc_port = launch.grpc_port or listening_port(log_path.read_text(errors="replace"), "grpc")
        grpc = Address("127.0.0.1", grpc_port) if grpc_port else None
        yield Server(launch.name, address, psutil.Process(popen.pid), ready_s, grpc)


def bound_to(cores: Sequence[int]) -> list[str]:
    """Return the words to put before a command so that it runs on these cores only; none for no cores."""
    return ["taskset", "--cpu-list", ",".join(str(core) for core in cores)] if cores else []


def listening_port(output: str, protocol: str = "http") -> int | None:
    """Return the port from the line in which Naiad says where it listens, or None while it isn't there yet or not named."""
    for line in output.splitlines(keepends=True):
        if line.startswith(LISTENING) and line.endswith("\n"):
            _, _, port = json.loads(line[len(LISTENING) :]).get(protocol, "").rpartition(":")
            return int(port) if port else None
    return None


def _wait_ready(popen: subprocess.Popen[bytes], launch: Launch, log_path: Path, until_s: float) -> Address:
    port: int | None = launch.port or None
    while time.monotonic() < until_s:
        if popen.poll() is not None:
            raise BenchError(f"ended with code {popen.returncode} before it was ready")
        port = port or listening_port(log_path.read_text(errors="replace"))
        if port is not None and _is_ready(Address("127.0.0.1", port)):
            return Address("127.0.0.1", port)
        time.sleep(POLL_S)
    raise BenchError(f"wasn't ready within {START_TIMEOUT_S:.0f} s")


def _is_ready(address: Address) -> bool:
    try:
        return exchange(address, "GET", InferRequest("/v2/health/ready", {}, b""))[0] == 200
    except OSError:
        return False  # Triton opens its ports only when its models are loaded


def _stop(popen: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it started; kill what doesn't end by itself, or at once when ^C comes meanwhile."""
    children = psutil.Process(popen.pid).children(recursive=True) if popen.poll() is None else []
    popen.terminate()
    try:
        popen.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"process {popen.pid} didn't end within {STOP_TIMEOUT_S:.0f} s of SIGTERM and is killed", file=sys.stderr)
    finally:
        popen.kill()
        popen.wait()
        _, left = psutil.wait_procs(children, timeout=CHILD_TIMEOUT_S)
        for child in left:
            child.kill()
        psutil.wait_procs(left, timeout=CHILD_TIMEOUT_S)


def _tail(path: Path, lines: int = 25) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different since they are held at the same time."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
