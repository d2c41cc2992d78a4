"""One server for all tests of raw HTTP; after each of them it must be the same process and answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from http_models import write_everything
from raw_http import Connection, infer
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess

LIMIT_BYTES = 1 << 20

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Iterator[tuple[ServerProcess, ScriptedModel]]:
    repository = write_everything(tmp_path_factory.mktemp("integration") / "models")
    scripted = ScriptedModel(repository, "scripted")
    process = ServerProcess(repository, f"--http-max-input-size={LIMIT_BYTES}", environment=ENVIRONMENT)
    try:
        yield process.wait_ready(), scripted
    finally:
        scripted.release()
        process.stop()


@pytest.fixture
def server(shared) -> Iterator[ServerProcess]:
    process, _ = shared
    yield process
    assert process.process.poll() is None, process.log()
    with Connection(process.host_port) as connection:
        assert connection.send(infer("echo", [1])).response()[0] == 200
    assert "fault of the server" not in process.log(), process.log()


@pytest.fixture
def scripted(shared, server) -> Iterator[ScriptedModel]:
    _, model = shared
    yield model
    model.release()


@pytest.fixture
def exchange(server, connect) -> Callable[[bytes], Answer]:
    """Send these bytes on a connection of their own and return the first response."""
    return lambda data: connect(server).send(data).response()


def error_text(answer: Answer, *statuses: int) -> str:
    status, headers, body = answer
    assert status in (statuses or (400,)), answer
    assert headers["content-type"] == "application/json"
    document = json.loads(body)
    assert list(document) == ["error"]
    return document["error"]


@pytest.fixture
def error() -> Callable[..., str]:
    """Return the text of an error response, which must have one of the statuses (400)."""
    return error_text
