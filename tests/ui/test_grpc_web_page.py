"""A page of another origin in a real browser calls RPCs with the official client, grpc-web."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser as browsers
import numpy as np
import pytest
from browser import Page
from grpc_models import echo_request, noted, rep_request, request, slow_request, write_grpc_models
from installed import node_modules
from programs import need_program
from server_process import ServerProcess
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_until

HERE = Path(__file__).parent / "grpc_web"
KEY = "first-key-0123456789"
METADATA = {"authorization": f"Bearer {KEY}", "x-own-bin": "AAE="}

# The first run installs, and a browser's first start is slow on a busy machine.
pytestmark = pytest.mark.timeout(360)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the page is, with the client's own file beside it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(node_modules(HERE)[1] / "grpc-web" / "index.esm.js", folder / "client.js")
    shutil.copy(HERE / "page.html", folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "poll", "rep")


@pytest.fixture(scope="module")
def server(repository: Path, origin: str, serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    return serve_for_module(repository, f"--http-cors-origin={origin}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.ClientConnection]:
    with browsers.running(need_program("chromium"), tmp_path_factory.mktemp("profile")) as connection:
        yield connection


@pytest.fixture
def page(browser: browsers.ClientConnection, origin: str) -> Iterator[Page]:
    page = Page(browser).open(f"{origin}/page.html")
    page.wait_for("window.isLoaded")
    yield page
    page.close()


def call(page: Page, function: str, *arguments: Any) -> Any:
    """Call a function of the page; messages go and come as base64."""
    packed = [base64.b64encode(a.SerializeToString()).decode() if hasattr(a, "SerializeToString") else a for a in arguments]
    found = page.evaluate(f"{function}({', '.join(map(json.dumps, packed))})")
    if isinstance(found, dict):
        found["messages"] = list(map(base64.b64decode, found["messages"]))
    return found


@pytest.mark.parametrize("form", ["text", "binary"])
def test_a_unary_call_is_answered(page: Page, server: ServerProcess, form: str) -> None:
    found = call(page, "unary", server.url, form, "ModelInfer", echo_request(1, 2, call_id="mine"), METADATA)
    response = pb.ModelInferResponse.FromString(found["messages"][0])
    assert (found["code"], response.id) == (0, "mine")
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [1, 2]


@pytest.mark.parametrize("form", ["text", "binary"])
def test_status_and_text_of_an_error_are_the_clients(page: Page, server: ServerProcess, form: str) -> None:
    found = call(page, "unary", server.url, form, "ModelInfer", request("n\u00f6body"), {})
    assert (found["code"], found["text"]) == (5, "Request for unknown model: 'n\u00f6body' is not found")


def test_a_stream_gives_every_response_and_ends(page: Page, server: ServerProcess) -> None:
    found = call(page, "stream", server.url, "ModelStreamInfer", rep_request(5), 0)
    responses = [pb.ModelStreamInferResponse.FromString(message).infer_response for message in found["messages"]]
    values = [np.frombuffer(r.raw_output_contents[0], np.int32)[0] for r in responses if r.raw_output_contents]
    assert (found["code"], values) == (0, [0, 1, 2, 3, 4])
    assert responses[-1].parameters["triton_final_response"].bool_param


def test_a_deadline_of_the_client_reaches_the_model(page: Page, server: ServerProcess, repository: Path) -> None:
    before = noted(repository, "poll", "cancelled.txt")
    deadline = page.evaluate("String(Date.now() + 300)")
    found = call(page, "unary", server.url, "text", "ModelInfer", slow_request(30_000, "poll"), {"deadline": deadline})
    assert found["code"] == 4
    wait_until(lambda: noted(repository, "poll", "cancelled.txt") > before)


def test_a_cancelled_stream_ends_what_runs_for_it(page: Page, server: ServerProcess) -> None:
    found = call(page, "stream", server.url, "ModelStreamInfer", rep_request(10_000_000), 3)
    assert len(found["messages"]) == 3
    wait_until(lambda: server.metric("naiad_running_requests", model="rep") == 0, what="the end of the request")


def test_a_page_that_leaves_ends_what_runs_for_it(
    browser: browsers.ClientConnection, origin: str, server: ServerProcess, repository: Path
) -> None:
    ran, cancelled = noted(repository, "poll"), noted(repository, "poll", "cancelled.txt")
    page = Page(browser).open(f"{origin}/page.html")
    page.wait_for("window.isLoaded")
    message = base64.b64encode(slow_request(30_000, "poll").SerializeToString()).decode()
    page.evaluate(f"void stream({json.dumps(server.url)}, 'ModelStreamInfer', {json.dumps(message)}, 0)")
    wait_until(lambda: noted(repository, "poll") > ran)
    page.close()
    wait_until(lambda: noted(repository, "poll", "cancelled.txt") > cancelled)


def test_fetch_reads_trailers_and_the_exposed_fields(page: Page, server: ServerProcess) -> None:
    assert call(page, "readsTrailers", server.url) == [200, "identity,deflate,gzip", "grpc-status: 0\r\n"]
    assert page.complaints == []


def test_an_origin_that_is_not_named_gets_no_answer(
    page: Page, tmp_path: Path, serve: Callable[..., ServerProcess], origin: str
) -> None:
    write_grpc_models(tmp_path, "echo")
    server = serve(tmp_path, f"--http-cors-origin={origin}0")
    assert call(page, "unary", server.url, "text", "ServerLive", pb.ServerLiveRequest(), {})["code"] != 0


def test_a_key_opens_the_server_to_a_page(page: Page, tmp_path: Path, serve: Callable[..., ServerProcess], origin: str) -> None:
    write_grpc_models(tmp_path, "echo")
    server = serve(tmp_path, f"--http-cors-origin={origin}", f"--api-key={KEY}")
    without, with_key = (
        call(page, "unary", server.url, "text", "ModelInfer", echo_request(1), metadata)["code"] for metadata in ({}, METADATA)
    )
    assert (without, with_key) == (16, 0)
