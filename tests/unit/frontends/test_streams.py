"""A stream of any number of responses: its client sets the pace, whatever waits is bounded, and a lost client ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from fake_service import FakeService
from raw_http import post

from naiad.errors import Code, DecoupledModelError, internal
from naiad.frontends.http.app import create_app
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.http.options import HttpOptions
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BYTES

STREAM = post("/v2/models/echo/generate_stream", b'{"S":"a"}')
PIECE_BYTES = 256 * 1024
# More than the kernel takes for a client that reads nothing.
ENDLESS_BYTES = 256 * 1024 * 1024
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class StreamService(FakeService):
    """Keeps the sink of each inference for the test to answer; `cancelled` are the calls that were given up.

    `refusal` is raised for every call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = []
        self.sinks = []
        self.cancelled = []
        self.refusal = None
        self.changed = asyncio.Event()

    def infer(self, call, sink):
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(call)
        self.sinks.append(sink)
        self.changed.set()
        return _Handle(self, call)

    async def wait(self, is_true: Callable[[], object]) -> None:
        while not is_true():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


class _Handle:
    def __init__(self, service: StreamService, call) -> None:
        self.service = service
        self.call = call

    def cancel(self) -> None:
        self.service.cancelled.append(self.call)
        self.service.changed.set()


def response(text: bytes) -> InferResponse:
    return InferResponse("echo", "1", "", [OutputTensor("Y", BYTES, bytes_tensor.as_array([text], (1,)))])


Scenario = Callable[[StreamService, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=LOOPS)
def run(request) -> Callable[[Scenario], None]:
    """Run a scenario with a service and one client's connection to it."""

    async def main(scenario: Scenario) -> None:
        loop, service = asyncio.get_running_loop(), StreamService()
        site = HttpSite(service, HttpOptions(), create_app(service, HttpOptions()), loop)
        server = await loop.create_server(lambda: HttpConnection(site), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
        try:
            await scenario(service, reader, writer)
        finally:
            writer.transport.abort()
            for connection in list(site.state.connections):
                connection.transport.abort()
            server.close()
            site.close()
            for _ in range(3):
                await asyncio.sleep(0)  # The loop tells of an abort at the end of its turn.

    def run_it(scenario: Scenario) -> None:
        loop = LOOPS[request.param]()
        try:
            loop.run_until_complete(main(scenario))
        finally:
            loop.close()

    return run_it


def fill(sink, on_writable: Callable[[], None]) -> int:
    """Send until the client doesn't keep up; return how many responses that were."""
    piece = response(b"x" * PIECE_BYTES)
    for count in range(1, ENDLESS_BYTES // PIECE_BYTES):
        sink.send(piece, False)
        if not sink.when_writable(on_writable):
            return count
    raise AssertionError("a client that reads nothing never slows its stream")


def waiting_bytes(sink) -> int:
    return sink.connection.transport.get_write_buffer_size()


def test_a_client_that_does_not_read_stops_its_stream_and_one_that_reads_again_goes_on(run):
    async def scenario(service, reader, writer):
        writer.write(STREAM)
        await service.wait(lambda: service.sinks)
        [sink] = service.sinks
        assert sink.when_writable(lambda: None)
        calls = []
        writable = asyncio.Event()

        def on_writable():
            calls.append("writable")
            writable.set()

        count = fill(sink, on_writable)
        assert waiting_bytes(sink) < 2 * PIECE_BYTES
        assert not sink.when_writable(on_writable)
        assert calls == []
        reading = asyncio.ensure_future(read_all(reader))
        await asyncio.wait_for(writable.wait(), 10)
        assert calls == ["writable", "writable"]
        assert sink.when_writable(on_writable)
        sink.send(None, True)
        body = await asyncio.wait_for(reading, 10)
        assert (body.count(b"data: "), body.count(b"x" * PIECE_BYTES)) == (count, count)

    run(scenario)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Read up to the end of a response in chunks."""
    parts = b""
    while not parts.endswith(b"\r\n0\r\n\r\n"):
        parts += await reader.read(1 << 20)
    return parts


def test_who_waits_for_a_client_is_told_when_it_is_gone(run):
    async def scenario(service, reader, writer):
        writer.write(STREAM)
        await service.wait(lambda: service.sinks)
        [sink] = service.sinks
        told = asyncio.Event()
        fill(sink, told.set)
        assert not told.is_set()
        writer.transport.abort()
        await asyncio.wait_for(told.wait(), 10)
        assert service.cancelled == service.calls
        assert sink.when_writable(told.set)
        sink.send(response(b"late"), True)

    run(scenario)


def test_a_request_behind_a_stream_begins_when_the_stream_has_ended(run):
    async def scenario(service, reader, writer):
        writer.write(STREAM * 2)
        await service.wait(lambda: service.sinks)
        fill(service.sinks[0], lambda: None)
        reading = asyncio.ensure_future(read_all(reader))
        assert len(service.sinks) == 1
        service.sinks[0].send(None, True)
        await service.wait(lambda: len(service.sinks) == 2)
        service.sinks[1].send(None, True)
        await reading

    run(scenario)


def test_a_single_response_waits_for_no_client(run):
    async def scenario(service, reader, writer):
        writer.write(post("/v2/models/echo/generate", b'{"S":"a"}'))
        await service.wait(lambda: service.sinks)
        assert service.sinks[0].when_writable(lambda: None)
        service.sinks[0].send(response(b"x"), True)
        writer.write(post("/v2/models/echo/infer", INFER))
        await service.wait(lambda: len(service.sinks) == 2)
        assert service.sinks[1].when_writable(lambda: None)

    run(scenario)


INFER = json.dumps({"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()


@pytest.mark.parametrize("path", ["infer", "generate", "generate_stream"])
@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_client_that_goes_away_cancels_what_runs_for_it(run, path, is_streaming):
    async def scenario(service, reader, writer):
        writer.write(post(f"/v2/models/echo/{path}", INFER if path == "infer" else b'{"S":"a"}'))
        await service.wait(lambda: service.sinks)
        if is_streaming:
            service.sinks[0].send(response(b"first"), False)
            if path == "generate_stream":
                await reader.readuntil(b"first")
        # Nothing is sent any more: only its own end tells that the client is gone.
        writer.close()
        await service.wait(lambda: service.cancelled)
        assert service.cancelled == service.calls

    run(scenario)


def test_a_half_closed_client_reads_its_stream_to_the_end_with_comments_between(run):
    async def scenario(service, reader, writer):
        writer.write(STREAM)
        await service.wait(lambda: service.sinks)
        [sink] = service.sinks
        sink.send(response(b"first"), False)
        writer.write_eof()
        text = await asyncio.wait_for(reader.readuntil(b":\n\n"), 10)
        assert text.count(b"data: ") == 1
        assert service.cancelled == []
        sink.send(response(b"second"), True)
        assert b"second" in await asyncio.wait_for(reader.read(-1), 10)

    run(scenario)


def test_only_generate_takes_many_responses(run):
    async def scenario(service, reader, writer):
        for count, path in enumerate(("infer", "generate", "generate_stream"), 1):
            writer.write(post(f"/v2/models/echo/{path}", INFER if path == "infer" else b'{"S":"a"}'))
            await service.wait(lambda count=count: len(service.calls) == count)
            service.sinks[-1].fail(internal("no"))
        assert [call.takes_many_responses for call in service.calls] == [False, True, True]

    run(scenario)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_generate_answers_when_there_was_exactly_one_response(run, count):
    async def scenario(service, reader, writer):
        writer.write(post("/v2/models/echo/generate", b'{"S":"a"}', "Connection: close"))
        await service.wait(lambda: service.sinks)
        for index in range(count):
            service.sinks[0].send(response(b"text %d" % index), False)
        service.sinks[0].send(None, True)
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        answer = json.loads(body)
        if count == 1:
            assert answer["Y"] == "text 0"
        else:
            assert "generate expects model to produce exactly 1 response" in answer["error"]

    run(scenario)


def test_generate_answers_at_the_second_response_and_gives_the_rest_up(run):
    async def scenario(service, reader, writer):
        writer.write(post("/v2/models/echo/generate", b'{"S":"a"}', "Connection: close"))
        await service.wait(lambda: service.sinks)
        for index in range(3):
            service.sinks[0].send(response(b"text %d" % index), False)
        assert b"exactly 1 response" in await reader.read(-1)
        assert service.cancelled == service.calls

    run(scenario)


def test_the_end_of_a_stream_without_a_response_is_no_event(run):
    async def scenario(service, reader, writer):
        writer.write(post("/v2/models/echo/generate_stream", b'{"S":"a"}', "Connection: close"))
        await service.wait(lambda: service.sinks)
        service.sinks[0].send(response(b"only"), False)
        service.sinks[0].send(None, True)
        assert (await reader.read(-1)).count(b"data: ") == 1

    run(scenario)


def test_infer_of_a_decoupled_model_is_a_501_that_says_what_to_use(run):
    async def scenario(service, reader, writer):
        service.refusal = DecoupledModelError("echo")
        writer.write(post("/v2/models/echo/infer", INFER, "Connection: close"))
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 501 ")
        text = json.loads(body)["error"]
        assert text.startswith("HTTP end point doesn't support models with decoupled transaction policy")
        assert "generate_stream" in text

    run(scenario)
    assert DecoupledModelError("m").code is Code.UNIMPLEMENTED
