"""What the connection relies on of uvicorn's HttpToolsProtocol and RequestResponseCycle, which are no public API.

A new uvicorn that fails here needs a look at frontends/http/connection/protocol.py before its pin is moved.
"""

from __future__ import annotations

import asyncio
import inspect
import logging

import pytest
from fake_transport import FakeTransport
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

HELLO = [
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]},
    {"type": "http.response.body", "body": b"hello"},
]


async def quiet_app(scope, receive, send) -> None:
    for message in HELLO:
        await send(message)


def make_protocol(app=quiet_app) -> HttpToolsProtocol:
    config = Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    return HttpToolsProtocol(config, ServerState(), {}, _loop=asyncio.get_running_loop())


class Setting:
    """A cycle on a fake transport, and how often it said that its response is complete."""

    def __init__(self, method="GET", keep_alive=True, expect_100_continue=False) -> None:
        self.protocol = make_protocol()
        self.transport = FakeTransport(self.protocol)
        self.completions = 0
        self.event = asyncio.Event()
        self.cycle = RequestResponseCycle(
            scope={"type": "http", "method": method},
            transport=self.transport,
            flow=self.protocol.flow,
            logger=logging.getLogger("uvicorn.error"),
            access_logger=logging.getLogger("uvicorn.access"),
            access_log=False,
            default_headers=[(b"x-default", b"1")],
            message_event=self.event,
            expect_100_continue=expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.count,
        )

    def count(self) -> None:
        self.completions += 1


def run(coroutine):
    return asyncio.run(coroutine)


def test_the_protocol_has_the_hooks_that_are_overridden():
    hooks = ("connection_made", "connection_lost", "eof_received", "data_received", "on_message_begin", "on_url", "on_header")
    hooks += ("on_headers_complete", "on_body", "on_message_complete", "on_response_complete", "shutdown")
    for name in hooks:
        assert inspect.isfunction(getattr(HttpToolsProtocol, name)), name


def test_the_cycle_takes_these_arguments_and_no_others():
    assert list(inspect.signature(RequestResponseCycle).parameters) == [
        "scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers", "message_event",
        "expect_100_continue", "keep_alive", "on_response",
    ]  # fmt: skip


def test_a_new_protocol_has_the_state_that_is_read():
    async def check() -> None:
        protocol = make_protocol()
        assert protocol.loop is asyncio.get_running_loop()
        assert (protocol.expect_100_continue, protocol.cycle) == (False, None)
        assert protocol.connections is protocol.server_state.connections
        assert protocol.app is protocol.config.loaded_app
        transport = FakeTransport(protocol)
        assert protocol.transport is transport
        assert protocol in protocol.connections
        assert (protocol.server, protocol.client, protocol.scheme) == (None, None, "http")
        assert protocol.flow.read_paused is False
        protocol.connection_lost(None)
        assert protocol not in protocol.connections

    run(check())


def test_flow_control_pauses_and_resumes_the_transport_once():
    async def check() -> None:
        protocol = make_protocol()
        transport = FakeTransport(protocol)
        protocol.flow.pause_reading()
        assert (protocol.flow.read_paused, transport.is_paused) == (True, True)
        protocol.flow.resume_reading()
        assert (protocol.flow.read_paused, transport.is_paused) == (False, False)
        protocol.connection_lost(None)

    run(check())


@pytest.mark.parametrize(("keep_alive", "ending"), [(True, b""), (False, b"connection: close\r\n")])
def test_a_response_has_the_default_headers_first_and_says_close_when_told(keep_alive, ending):
    async def check() -> None:
        setting = Setting(keep_alive=keep_alive)
        await setting.cycle.run_asgi(quiet_app)
        head = b"HTTP/1.1 200 OK\r\nx-default: 1\r\ncontent-length: 5\r\n" + ending
        assert setting.transport.written == head + b"\r\nhello"
        assert setting.completions == 1
        assert setting.cycle.response_complete
        assert setting.cycle.response_started
        assert setting.transport.is_closed is not keep_alive
        setting.protocol.connection_lost(None)

    run(check())


def test_a_response_to_head_has_no_body():
    async def check() -> None:
        setting = Setting(method="HEAD")
        await setting.cycle.run_asgi(quiet_app)
        assert setting.transport.written.endswith(b"content-length: 5\r\n\r\n")
        assert setting.completions == 1
        setting.protocol.connection_lost(None)

    run(check())


def test_keep_alive_may_be_taken_back_until_the_response_starts():
    async def check() -> None:
        setting = Setting()
        setting.cycle.keep_alive = False
        await setting.cycle.run_asgi(quiet_app)
        assert b"connection: close" in setting.transport.written
        setting.protocol.connection_lost(None)

    run(check())


def test_on_body_gathers_the_body_and_the_end_is_said_by_more_body_and_the_event():
    async def check() -> None:
        setting = Setting()
        setting.protocol.cycle = setting.cycle
        setting.protocol.on_body(b"ab")
        setting.protocol.on_body(b"cd")
        assert await setting.cycle.receive() == {"type": "http.request", "body": b"abcd", "more_body": True}
        setting.cycle.more_body = False
        setting.event.set()
        assert await setting.cycle.receive() == {"type": "http.request", "body": b"", "more_body": False}
        setting.protocol.connection_lost(None)

    run(check())


def test_a_disconnected_cycle_receives_a_disconnect_and_sends_nothing():
    async def check() -> None:
        setting = Setting()
        receiving = asyncio.ensure_future(setting.cycle.receive())
        await asyncio.sleep(0)
        setting.cycle.disconnected = True
        setting.event.set()
        assert await receiving == {"type": "http.disconnect"}
        await setting.cycle.send(HELLO[0])
        assert setting.transport.written == b""
        setting.protocol.connection_lost(None)

    run(check())


def test_100_is_sent_when_the_app_asks_for_the_body_and_only_then():
    async def check() -> None:
        setting = Setting(expect_100_continue=True)
        assert setting.transport.written == b""
        setting.event.set()
        await setting.cycle.receive()
        assert setting.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        setting.protocol.connection_lost(None)

    run(check())


def test_the_app_runs_as_a_task_of_its_own_that_the_server_state_holds():
    async def check() -> None:
        setting = Setting()
        setting.protocol._start_asgi_task(setting.cycle, quiet_app)
        assert len(setting.protocol.server_state.tasks) == 1
        assert setting.transport.written == b""
        await asyncio.gather(*setting.protocol.server_state.tasks)
        await asyncio.sleep(0)
        assert setting.completions == 1
        assert not setting.protocol.server_state.tasks
        setting.protocol.connection_lost(None)

    run(check())
