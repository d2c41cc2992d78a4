"""One server for all tests of the protocol over HTTP, and the ways to ask it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import tritonclient.http as triton
from http_models import write_everything
from server_process import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(
        write_everything(tmp_path_factory.mktemp("models")), "--id=under-test", "--http-max-input-size=1048576"
    )
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture
def client(server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.http) as made:
        yield made


@pytest.fixture
def ask(server) -> Iterator[Callable[..., requests.Response]]:
    """Send a request: `ask("GET", "/v2")`; `json=` is sent as Python's json writes it, NaN and Infinity included."""
    with requests.Session() as session:

        def send(method: str, path: str, json: Any = None, **more: Any) -> requests.Response:
            if json is not None:
                more["data"] = dumps(json)
            return session.request(method, server.url + path, timeout=10, **more)

        yield send


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def infer(ask) -> Callable[..., requests.Response]:
    """Send one JSON inference with input X: `infer("echo", [1.0], shape=[1, 1])`; `more` are further members."""

    def send(model: str, data: Any, shape: list[int] | None = None, datatype: str = "FP32", **more: Any) -> requests.Response:
        size = len(data) if isinstance(data, list) else 1
        item = {"name": "X", "shape": [1, size] if shape is None else shape, "datatype": datatype, "data": data}
        return ask("POST", f"/v2/models/{model}/infer", {"inputs": [item], **more})

    return send


@pytest.fixture
def refused(infer) -> Callable[..., str]:
    """As `infer`, for one that must be a 400; returns the error's text."""

    def send(*arguments: Any, **more: Any) -> str:
        return error_text(infer(*arguments, **more))

    return send


def error_text(response: requests.Response, status: int = 400) -> str:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


@pytest.fixture
def error() -> Callable[..., str]:
    """Return the text of an error response, which must have the status (400) and nothing but that text."""
    return error_text
