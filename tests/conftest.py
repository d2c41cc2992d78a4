"""What all tests share: server processes, raw connections, and how hypothesis runs.

Servers and connections end with the test, or with the module for those of a module.

`serve(path, "--flag=value")` starts a server and waits until it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from raw_http import Connection
from server_process import ServerProcess


def pytest_configure() -> None:
    """Let no property fail because the machine was busy: how long an example took says nothing about a rule."""
    settings.register_profile("naiad", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("naiad")


@contextmanager
def starter() -> Iterator[Callable[..., ServerProcess]]:
    with ExitStack() as ends:

        def start(*arguments: str | Path, ready_within_s: float = 20, **more) -> ServerProcess:
            server = ServerProcess(*arguments, **more)
            ends.callback(server.stop)
            return server.wait_ready(ready_within_s)

        yield start


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    with starter() as start:
        yield start


@pytest.fixture(scope="module")
def serve_for_module() -> Iterator[Callable[..., ServerProcess]]:
    """As `serve`, for a server that the tests of a module share."""
    with starter() as start:
        yield start


@pytest.fixture
def connect() -> Iterator[Callable[[ServerProcess], Connection]]:
    """Open raw connections to a server; all are closed with the test."""
    connections: list[Connection] = []

    def begin(server: ServerProcess) -> Connection:
        connections.append(Connection(server.host_port))
        return connections[-1]

    yield begin
    for connection in connections:
        connection.close()
