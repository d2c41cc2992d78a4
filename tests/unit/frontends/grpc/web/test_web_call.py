"""gRPC-Web calls over ASGI without sockets: who answers, how calls end, and what waits for whom."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpc_pair import Recorded, echo
from grpc_web import BINARY, TEXT, Answer, answer, body, frame

from naiad.errors import InferenceServerError, unavailable
from naiad.frontends.access import AccessRules
from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.options import GrpcOptions
from naiad.frontends.grpc.site import GrpcSite
from naiad.frontends.grpc.web.app import GrpcWebApp

HIGH = 1 << 20


class Browser:
    """One request, whose body and reading are in the test's hands."""

    def __init__(self, path: bytes, form: str, method: str = "POST", **fields: bytes) -> None:
        headers = [(b"content-type", form.encode()), (b"host", b"h")]
        headers += [(name.replace("_", "-").encode(), value) for name, value in fields.items()]
        self.scope = {"type": "http", "method": method, "raw_path": path, "headers": headers}
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.sent: list[dict[str, Any]] = []
        self.form = form

    def put(self, data: bytes, more: bool = False) -> Browser:
        self.events.put_nowait({"type": "http.request", "body": data, "more_body": more})
        return self

    def leave(self) -> None:
        self.events.put_nowait({"type": "http.disconnect"})

    async def send(self, message: dict[str, Any]) -> None:
        await self.may_read.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def answer(self) -> Answer:
        assert self.sent[0]["status"] == 200
        assert not self.sent[-1]["more_body"]
        return answer(self.form, self.body)


class Gathering(Recorded):
    """Ends when its client has sent everything."""

    def on_half_close(self) -> None:
        super().on_half_close()
        self.transport.finish()


class Host:
    """The app with RPCs /t.T/Echo, /t.T/Each (a stream that echoes), /t.T/Wait, /t.T/Gather; `rpcs` are those begun."""

    def __init__(self, options: GrpcOptions) -> None:
        self.rpcs: list[Recorded] = []
        answers = {b"Echo": echo, b"Each": lambda rpc, message: rpc.transport.send([message]), b"Wait": None}
        methods = [
            RpcMethod(b"/t.T/" + name, "inference", lambda transport, how=how: self._start(transport, how))
            for name, how in answers.items()
        ]
        methods.append(RpcMethod(b"/t.T/Gather", "inference", lambda transport: self._note(Gathering(transport))))
        self.site = GrpcSite(methods, options, asyncio.get_running_loop())
        self.app = GrpcWebApp(self.site, AccessRules(()), self._otherwise)
        self.others = 0

    def _start(self, transport: Any, how: Any) -> Recorded:
        return self._note(Recorded(transport, how))

    def _note(self, rpc: Recorded) -> Recorded:
        self.rpcs.append(rpc)
        return rpc

    async def _otherwise(self, *_: Any) -> None:
        self.others += 1

    def begin(self, browser: Browser) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.app(browser.scope, browser.events.get, browser.send))

    async def serve(self, browser: Browser) -> Answer:
        await self.begin(browser)
        assert not self.site.web_calls
        return browser.answer


def run(ask: Callable[[Host], Awaitable[None]], **options: Any) -> None:
    async def inside() -> None:
        host = Host(GrpcOptions(**options))
        await asyncio.wait_for(ask(host), 10)
        host.site.codec_thread.close()

    asyncio.run(inside())


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("form", [BINARY, TEXT])
def test_a_message_is_answered_and_the_trailers_follow(form):
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Echo", form).put(body(form, frame(b"abcd"))))
        assert (found.messages, found.trailers) == ([b"abcd"], {"grpc-status": "0"})

    run(ask)


@pytest.mark.parametrize("form", [BINARY, TEXT])
def test_a_body_in_single_bytes_is_the_same_body(form):
    async def ask(host):
        browser = Browser(b"/t.T/Each", form)
        for byte in body(form, frame(b"one"), frame(b""), frame(b"three")):
            browser.put(bytes([byte]), more=True)
        task = host.begin(browser.put(b""))
        await turns(400)
        assert (host.rpcs[0].messages, host.rpcs[0].is_half_closed) == ([b"one", b"", b"three"], True)
        host.rpcs[0].transport.finish()
        await task
        assert browser.answer.messages == [b"one", b"", b"three"]

    run(ask)


@pytest.mark.parametrize(
    ("path", "form", "method"),
    [
        (b"/t.T/Echo", "application/json", "POST"),
        (b"/t.T/Echo", "application/grpc", "POST"),
        (b"/t.T/Echo", BINARY, "GET"),
        (b"/v2/health/live", BINARY, "POST"),
        (b"/v2/models/a.b/infer", BINARY, "POST"),
        (b"/T/Echo", BINARY, "POST"),
    ],
)
def test_everything_else_is_answered_by_the_app_behind(path, form, method):
    async def ask(host):
        await host.begin(Browser(path, form, method))
        assert (host.others, host.rpcs) == (1, [])

    run(ask)


@pytest.mark.parametrize(
    ("form", "content", "status", "words"),
    [
        (BINARY, b"garbage", 13, "flag byte"),
        (BINARY, frame(b"abc")[:-1], 13, "ended within a message"),
        (BINARY, b"\x00\xff\xff\xff\xff", 8, "larger than the limit"),
        (BINARY, frame(b"x", 1), 13, "no grpc-encoding"),
        (TEXT, b"****", 3, "0x2a"),
        (TEXT, body(TEXT, frame(b"abc")) + b"A", 3, "left over"),
    ],
)
def test_a_bad_body_ends_the_call_with_a_status_and_tells_the_rpc(form, content, status, words):
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Wait", form).put(content))
        assert (found.status, found.messages) == (status, [])
        assert words in found.text
        assert len(host.rpcs[0].cancels) == 1

    run(ask, max_message_size=1000)


def test_an_unknown_rpc_is_unimplemented_in_the_trailers():
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Nothing", BINARY).put(frame(b"")))
        assert (found.status, found.text) == (12, "there is no RPC '/t.T/Nothing' here")

    run(ask)


def test_a_body_that_is_packed_as_a_whole_is_refused():
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Echo", BINARY, content_encoding=b"gzip").put(gzip.compress(frame(b"a"))))
        assert found.status == 12
        assert "content-encoding is 'gzip'" in found.text

    run(ask)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_packed_messages_are_unpacked_in_order(size):
    async def ask(host):
        first, second = bytes(range(256)) * (size // 256 + 20), b"last"
        browser = Browser(b"/t.T/Gather", BINARY, grpc_encoding=b"gzip")
        found = await host.serve(browser.put(frame(gzip.compress(first, 0), 1) + frame(second)))
        assert (found.status, host.rpcs[0].messages) == (0, [first, second])

    run(ask)


def test_a_large_packed_message_that_is_broken_ends_the_call():
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Wait", BINARY, grpc_encoding=b"gzip").put(frame(bytes(5000), 1)))
        assert (found.status, host.rpcs[0].messages) == (3, [])

    run(ask)


@pytest.mark.parametrize("timeout", [b"0n", b"1m"])
def test_a_deadline_ends_the_call(timeout):
    async def ask(host):
        found = await host.serve(Browser(b"/t.T/Wait", BINARY, grpc_timeout=timeout).put(frame(b"")))
        assert found.status == 4
        assert [error.code.name for rpc in host.rpcs for error in rpc.cancels] == ["DEADLINE_EXCEEDED"] * len(host.rpcs)

    run(ask)


def test_a_client_that_leaves_cancels_its_rpc():
    async def ask(host):
        browser = Browser(b"/t.T/Wait", BINARY).put(frame(b"a"))
        task = host.begin(browser)
        await turns()
        browser.leave()
        await task
        assert (host.rpcs[0].messages, host.rpcs[0].cancels, host.site.web_calls) == ([b"a"], [None], set())

    run(ask)


def test_the_end_of_the_server_ends_open_calls_and_later_ones():
    async def ask(host):
        browser = Browser(b"/t.T/Each", TEXT).put(body(TEXT, frame(b"a")), more=True)
        task = host.begin(browser)
        await turns()
        for call in list(host.site.web_calls):
            call.fail(unavailable("over"))
        await task
        assert (browser.answer.status, browser.answer.text, browser.answer.messages) == (14, "over", [b"a"])
        assert isinstance(host.rpcs[0].cancels[0], InferenceServerError)
        host.site.has_stopped = True
        assert (await host.serve(Browser(b"/t.T/Echo", BINARY).put(frame(b"a")))).status == 14

    run(ask)


def test_a_sender_waits_for_a_client_that_does_not_read_and_for_one_that_is_gone_no_longer():
    async def ask(host):
        for is_leaving in (False, True):
            browser = Browser(b"/t.T/Wait", BINARY).put(b"", more=True)
            browser.may_read.clear()
            task = host.begin(browser)
            await turns()
            transport, woken = host.rpcs[-1].transport, []
            assert transport.when_writable(lambda woken=woken: woken.append(1))
            transport.send([bytes(HIGH)])
            assert not transport.when_writable(lambda woken=woken: woken.append(1))
            await turns()
            assert woken == []
            if is_leaving:
                browser.leave()
            browser.may_read.set()
            await turns()
            assert woken == [1]
            transport.finish()
            await task

    run(ask)


def test_requests_that_are_held_wait_in_their_order():
    async def ask(host):
        browser = Browser(b"/t.T/Wait", BINARY).put(b"", more=True)
        task = host.begin(browser)
        await turns()
        rpc = host.rpcs[0]
        rpc.transport.hold_requests(True)
        browser.put(frame(b"a") + frame(b"b"))
        await turns()
        assert rpc.messages == []
        rpc.transport.hold_requests(False)
        await turns()
        assert (rpc.messages, rpc.is_half_closed) == ([b"a", b"b"], True)
        rpc.transport.finish()
        await task

    run(ask)


@pytest.mark.parametrize("form", [BINARY, TEXT])
def test_a_large_answer_is_written_in_pieces_and_whole(form):
    async def ask(host):
        sent = bytes(range(256)) * 4000
        browser = Browser(b"/t.T/Echo", form).put(body(form, frame(sent)))
        assert (await host.serve(browser)).messages == [sent]
        assert max(len(message["body"]) for message in browser.sent[1:]) <= 256 * 1024

    run(ask)


def test_only_the_clients_own_fields_are_metadata():
    async def ask(host):
        await host.serve(Browser(b"/t.T/Echo", BINARY, my_key=b"v", data_bin=b"AAE=").put(frame(b"")))
        fields = dict(host.rpcs[0].transport.metadata)
        assert (fields[b"my-key"], fields[b"data-bin"], b"host" in fields) == (b"v", b"AAE=", False)

    run(ask)
