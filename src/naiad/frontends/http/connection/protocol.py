"""The protocol class of one HTTP/1.1 connection.

Owns framing limits, the order of responses, time-outs, half-closed and lost clients. Hot routes become `Exchange`s answered in
place, everything else a task of the Starlette app by uvicorn's own `RequestResponseCycle`; both wait in one queue, so responses
keep the order of requests. What is relied on of uvicorn's class is held by tests/unit/frontends/test_uvicorn_contract.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from naiad.errors import InferenceServerError
from naiad.frontends.http.connection import reply
from naiad.frontends.http.connection.body import Body, DirectReceiver
from naiad.frontends.http.connection.exchange import Exchange, Preflight, Refusal
from naiad.frontends.http.connection.half_close import HalfCloseWatch, probe_of_app
from naiad.frontends.http.connection.hot import HotExchange, OpenedHead, without_upgrade
from naiad.frontends.http.connection.site import HttpSite, RequestHead
from naiad.frontends.http.connection.timeouts import MessageClock

Buffer = bytes | bytearray | memoryview

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADER_LINES = 256
MAX_CHUNKS = 65_536
MAX_PIPELINED = 32
LINGER_SECONDS = 2.0

_log = logging.getLogger("naiad.http")


class HttpConnection(HttpToolsProtocol):
    """See the module. Loop thread only."""

    def __init__(self, site: HttpSite) -> None:
        super().__init__(site.config, site.state, {}, _loop=site.loop)
        self.access_log = False
        self._site = site
        self._head_bytes = 0
        self._spelled_headers: list[tuple[bytes, bytes]] = []
        self._is_in_head = False
        self._is_discarding = False
        self._is_upgrade = False
        self._is_between = True
        self._learnable: OpenedHead | None = None
        self._is_continue_due = False
        self._is_pumping = False
        self._receiving: HotExchange | None = None
        self._asgi_chunks = 0
        self._active: Exchange | RequestResponseCycle | None = None
        self._queue: deque[Exchange | RequestResponseCycle] = deque()
        self._clock = MessageClock(site.loop, site.options, self)
        self._half_close: HalfCloseWatch | None = None
        self._write_waiters: list[Callable[[], None]] = []

    # --- the transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.BaseProtocol`. Beyond the limit of connections a client gets 503 and the door."""
        super().connection_made(transport)
        self._clock.start()
        if len(self.connections) > self._site.options.max_connections:
            limit = self._site.options.max_connections
            self._refuse(503, f"too many connections: the limit is {limit}, raise it with --http-max-connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`. Whatever runs for the client is given up."""
        self._clock.stop()
        if self._half_close is not None:
            self._half_close.stop()
        waiting, self._queue = [self._active, *self._queue], deque()
        self._active = self._receiving = None
        for item in waiting:
            if isinstance(item, Exchange):
                item.cancel()
            elif item is not None:
                item.disconnected = True
                item.message_event.set()
        super().connection_lost(exc)
        self._wake_writers()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`: the client has read what was waiting for it."""
        super().resume_writing()
        self._wake_writers()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """See `asyncio.Protocol`. A client that only closed its own direction still gets the answers to whole requests."""
        if self._active is None and not self._queue:
            return None
        # TLS as asyncio has it knows no half-closed connection.
        if self._receiving is not None or self._is_in_head or self._is_discarding or self.scheme == "https":
            return None
        self._half_close = HalfCloseWatch(self.loop, self.transport, self._probe_bytes)
        self._half_close.start()
        return True

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_discarding:
            return
        self._clock.last_data = self.loop.time()
        is_between = self._is_between
        if is_between and self._receive_known(data):
            return
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            _log.exception("a request failed by a fault of the server")
            self._refuse(500, "internal error, see the server's log")
        except httptools.HttpParserError as error:
            self._refuse(400, f"malformed HTTP request: {error}")
        else:
            self._after_parsing(data, is_between)

    def _receive_known(self, data: bytes) -> bool:
        """Take `data` without the parser when it is one whole hot request whose head came before, or all of it did."""
        site = self._site
        if len(site.answers) and not self.is_busy and not self.flow.write_paused:
            answer = site.answers.find(data)
            if answer is not None:
                self.server_state.total_requests += 1
                self.transport.write(answer)
                return True
        known = site.heads.find(data)
        if known is None:
            return False
        opened, start = known
        exchange = site.exchange(opened, self)
        exchange.source = data
        exchange.content = memoryview(data)[start:]
        self._admit(exchange)
        return True

    def _after_parsing(self, data: bytes, was_between: bool) -> None:
        receiving = self._receiving
        if receiving is not None:
            if receiving.body.is_direct:
                self._receive_direct(receiving.body)
        elif self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
        elif was_between and self._is_between and self._learnable is not None:
            self._site.heads.learn(data, self._learnable)

    # --- the parser's calls

    def on_message_begin(self) -> None:
        """See httptools."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._spelled_headers = []
        self._is_in_head = True
        self._is_between = False
        self._learnable = None
        self._clock.begin_message()

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools; called for trailers too, which are counted and dropped."""
        if not self._is_in_head:
            # Each line costs its share of the limit too, so that many short ones are no way around it.
            self._head_bytes += len(name) + len(value) + MAX_HEAD_BYTES // MAX_HEADER_LINES
            if self._head_bytes > MAX_HEAD_BYTES and not self._is_discarding:
                self._refuse(431, f"the request's trailers are larger than {MAX_HEAD_BYTES} bytes")
            return
        if self._site.forwards_headers:
            self._spelled_headers.append((name, value))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """See httptools. From here on it is known who answers."""
        if self._is_discarding:
            return
        self._is_in_head = False
        self._head_bytes = 0
        if len(self.headers) > MAX_HEADER_LINES:
            self._refuse(431, f"the request has {len(self.headers)} header lines, at most {MAX_HEADER_LINES} are allowed")
            return
        site = self._site
        method = self.parser.get_method()
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        extra = site.cors_lines(self.headers)
        if method == b"POST":
            route = site.routes.find(self.url)
            if route is not None:
                self._begin_hot(site.open(route, self, RequestHead(self.headers, self._spelled_headers, extra, keep_alive)))
                return
        elif method == b"OPTIONS":
            lines = site.preflight(self.headers)
            if lines is not None:
                self._admit(Preflight(self, lines, keep_alive))
                return
        self._begin_asgi(method, extra, keep_alive)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if self._is_discarding:
            return
        self._head_bytes = 0
        exchange = self._receiving
        if exchange is not None:
            exchange.body.add(body)
            if exchange.body.length < 0:
                self._check_chunks(exchange.body)
        elif self.cycle is not None and not self.cycle.response_complete:
            self._asgi_chunks += 1
            if self._asgi_chunks > MAX_CHUNKS:
                self._refuse(400, f"the body has too many chunks: at most {MAX_CHUNKS} are allowed")
                return
            super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._is_between = True
        self._clock.end_message()
        if self._is_discarding or self._is_upgrade:
            return
        exchange = self._receiving
        if exchange is not None:
            self._receiving = None
            self._is_continue_due = False
            if not self.expect_100_continue:
                self._learnable = exchange.opened
            exchange.content = exchange.body.take()
            self._admit(exchange)
        elif self.cycle is not None and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    # --- what exchanges call (`Transmitter`)

    def write(self, buffers: Sequence[Buffer]) -> None:
        """See `Transmitter.write`. Small responses leave in one piece, large ones without a copy of ours."""
        transport = self.transport
        if transport.is_closing():
            return
        if sum(map(len, buffers)) <= 4096:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers[:-1])
            transport.write(buffers[-1])  # asyncio's `writelines` doesn't tell of a full buffer before 3.13.2 (CVE-2024-12254).

    def end(self, exchange: Exchange) -> None:
        """See `Transmitter.end`."""
        self.server_state.total_requests += 1
        self._active = None
        if exchange.keep_alive and self._half_close is None:
            self._pump()
        elif exchange.must_discard:
            self._linger()
        elif not self._queue or self._half_close is None:
            self.transport.close()
        else:
            self._pump()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `Transmitter.when_writable`. A client keeps up while less than the transport's high-water mark waits for it."""
        if not self.flow.write_paused or self.transport.is_closing():
            return True
        self._write_waiters.append(callback)
        return False

    def is_closing_wanted(self) -> bool:
        """See `Transmitter.is_closing_wanted`."""
        return self._site.service.is_draining()

    def _wake_writers(self) -> None:
        waiters, self._write_waiters = self._write_waiters, []
        for callback in waiters:
            callback()

    # --- order

    def on_response_complete(self) -> None:
        """See uvicorn: the active response of the Starlette app is complete."""
        self.server_state.total_requests += 1
        self._active = None
        if self.transport.is_closing():
            return
        if self._half_close is not None and not self._queue:
            self.transport.close()
            return
        self.flow.resume_reading()
        self._pump()

    def shutdown(self) -> None:
        """End the connection: at once when nothing runs on it, else after the response that is being made."""
        if self._active is None and not self._queue:
            self.transport.close()
        elif isinstance(self._active, RequestResponseCycle):
            self._active.keep_alive = False

    def fail_active(self, error: InferenceServerError) -> None:
        """End the hot request that is being answered with `error`; the server can't wait for it any longer."""
        active = self._active
        if isinstance(active, HotExchange):
            active.keep_alive = False
            active.fail(error)

    def close_idle(self) -> None:
        """Close a connection whose client keeps it without a request."""
        if self._active is None and not self._queue:
            self.transport.close()

    def give_up_message(self, text: str) -> None:
        """Refuse the request that is arriving too slowly; one that is answered already just loses its connection."""
        if self._receiving is None and not self._is_in_head and self.cycle is not None and self.cycle.response_complete:
            self.transport.close()
            return
        self._refuse(408, text)

    @property
    def is_in_head(self) -> bool:
        """Whether a request's head has begun and isn't complete."""
        return self._is_in_head

    @property
    def is_busy(self) -> bool:
        """Whether a whole request waits for its answer."""
        return self._active is not None or bool(self._queue)

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its answer, or a part of an answer for its client to read on."""
        active = self._active
        if isinstance(active, RequestResponseCycle) and active.more_body:
            return False
        return self.is_busy or self.transport.get_write_buffer_size() > 0

    @property
    def body_received(self) -> int:
        """How many bytes of the arriving body are here; only its changes mean something."""
        if self._receiving is not None:
            return self._receiving.body.received
        return self._asgi_chunks

    def _probe_bytes(self) -> bytes:
        active = self._active
        if isinstance(active, Exchange):
            return active.probe()
        return b"" if active is None else probe_of_app(active)

    def _admit(self, item: Exchange | RequestResponseCycle) -> None:
        """Queue a request for its turn."""
        self._queue.append(item)
        if len(self._queue) >= MAX_PIPELINED:
            self.flow.pause_reading()
        if self._active is None:
            self._pump()

    def _pump(self) -> None:
        """Start what waits, one at a time; what ends at once is followed by the next without recursion."""
        if self._is_pumping:
            return
        self._is_pumping = True
        while self._queue and self._active is None and not self.transport.is_closing():
            item = self._active = self._queue.popleft()
            if isinstance(item, Exchange):
                try:
                    item.start()
                except Exception:
                    item.respond_fault()
            else:
                self._start_asgi_task(item, self.app)
        self._is_pumping = False
        if self._active is None and not self._queue:
            self._clock.last_data = self.loop.time()
            if self._is_continue_due:
                self._is_continue_due = False
                self.write([reply.CONTINUE])
        if self.flow.read_paused and len(self._queue) < MAX_PIPELINED:
            self.flow.resume_reading()

    # --- beginnings

    def _begin_hot(self, opened: OpenedHead | Refusal) -> None:
        if isinstance(opened, Refusal):
            self._receiving = None
            self._stop_reading_for(opened)
            return
        exchange = self._receiving = self._site.exchange(opened, self)
        exchange.body = self._site.body(opened)
        if self.expect_100_continue:
            if self.is_busy:
                self._is_continue_due = True
            else:
                self.write([reply.CONTINUE])

    def _begin_asgi(self, method: bytes, extra: bytes, keep_alive: bool) -> None:
        try:
            scope = self._site.scope(method, self.url, self.headers, self.parser.get_http_version())
        except InferenceServerError as error:
            self._refuse(400, error.message)
            return
        scope["server"], scope["client"], scope["scheme"] = self.server, self.client, self.scheme
        self._asgi_chunks = 0
        self._receiving = None
        self.scope = scope
        self.cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=reply.as_pairs(extra),
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            # A client that waits for 100 and gets an answer instead may send its body or not: the next request can't be told.
            keep_alive=keep_alive and not self.expect_100_continue and not self.is_closing_wanted(),
            on_response=self.on_response_complete,
        )
        self._admit(self.cycle)

    def _receive_direct(self, body: Body) -> None:
        """Let the loop write the rest of a large body into its buffer."""

        def complete() -> None:
            self.transport.set_protocol(self)
            # The old parser still waits for the body that went past it.
            self.parser = httptools.HttpRequestParser(self)
            self._clock.last_data = self.loop.time()
            self.on_message_complete()

        self.transport.set_protocol(DirectReceiver(self, body, complete))

    # --- ends

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read a request that offers another protocol once more, without the offer (RFC 9110 §7.8: it may be ignored).

        The parser skips the body of such a request, so the head is given to a new one with `rest`, what came behind it.
        """
        self._is_upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, "CONNECT is not supported: this server is no proxy")
            return
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(without_upgrade(method, self.url, self.headers) + rest)

    def _check_chunks(self, body: Body) -> None:
        if body.is_over_limit:
            self._refuse(
                413,
                f"the request's body exceeds {body.limit} bytes, the limit for bodies of unknown length: raise it with "
                "--http-max-input-size or send Content-Length",
            )
        elif body.chunk_count > MAX_CHUNKS:
            self._refuse(400, f"the body has too many chunks: at most {MAX_CHUNKS} are allowed")

    def _refuse(self, status: int, message: str) -> None:
        """Answer the arriving request with an error in its turn, and read no further."""
        if self._is_discarding:
            return
        cycle = self.cycle
        if self._receiving is None and cycle is not None and cycle.more_body and cycle is self._active:
            # The app waits for a body that will never be complete; it has not answered yet.
            cycle.disconnected = True
            cycle.message_event.set()
            self._active = None
        self._receiving = None
        self._stop_reading_for(Refusal(self, self._site.cors_lines(self.headers or []), status, message))

    def _stop_reading_for(self, refusal: Refusal) -> None:
        self._is_discarding = True
        self._is_in_head = False
        self._clock.end_message()
        self._admit(refusal)

    def _linger(self) -> None:
        """Close our direction and throw away what still comes, so that the client reads the answer before a reset."""
        self._is_discarding = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
