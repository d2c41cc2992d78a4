"""A server process for tests: `serve(path, "--flag=value")` starts one and waits until it is ready; all end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raw_http import Connection
from server_process import ServerProcess


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    servers: list[ServerProcess] = []

    def start(*arguments: str | Path, **more) -> ServerProcess:
        server = ServerProcess(*arguments, **more)
        servers.append(server)
        return server.wait_ready()

    yield start
    for server in servers:
        server.stop()


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
