"""A server process for tests: `serve(path, "--flag=value")` starts one and waits until it is ready; all end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
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
