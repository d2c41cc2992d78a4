"""Hot requests: what their heads say about their bodies, and the refusals that follow from a head alone.

Owns limits and encodings of hot bodies. Subclasses answer inference and generate requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from naiad.errors import InferenceServerError, invalid_argument
from naiad.frontends.codec_thread import CodecThread
from naiad.frontends.http.connection import reply
from naiad.frontends.http.connection.body import DIRECT_SIZE, Body, Buffer
from naiad.frontends.http.connection.exchange import Exchange, Transmitter
from naiad.frontends.http.connection.routes import HotRoute
from naiad.frontends.http.json_helper.process import JsonHelper
from naiad.frontends.http.status import error_body
from naiad.request.response import KeptAnswer
from naiad.request.service import InferenceService, InferHandle
from naiad.wire.call_templates import CallTemplates
from naiad.wire.compression import check_coding, decompress
from naiad.wire.kserve_request import parse_header_length
from naiad.wire.kserve_response import ResponseTemplates
from naiad.wire.limits import RequestLimits

Headers = list[tuple[bytes, bytes]]

# Content-Length is read as a signed 32-bit number, as Triton does.
MAX_CONTENT_LENGTH = 2**31 - 1
# What unpacks to a thousand times its size would still be some milliseconds.
LARGE_PACKED_BYTES = 4096
_ACCEPTED_CODINGS = b"Accept-Encoding: gzip, deflate\r\n"
_ONCE = (b"content-length", b"inference-header-content-length", b"content-encoding", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class Head:
    """A request's head as far as its body is concerned.

    `content_length` is -1 for chunked bodies. `header_length` is the length of the JSON part, None when the whole body is JSON.
    `encoding` is the content coding in lower case, "" for none.
    """

    content_length: int
    header_length: int | None
    encoding: str
    accept_encoding: str


def read_head(headers: Headers) -> Head:
    """Read a head. Raises INVALID_ARGUMENT for a field that is there twice or has a value that can't be."""
    fields = dict(headers)
    if len(fields) != len(headers):
        _refuse_duplicates(headers)
    is_chunked = b"transfer-encoding" in fields
    content_length = -1 if is_chunked else int(fields.get(b"content-length", b"0"))
    if content_length > MAX_CONTENT_LENGTH:
        raise invalid_argument(f"Content-Length is {content_length}, must be in range (0, {MAX_CONTENT_LENGTH})")
    length_text = fields.get(b"inference-header-content-length")
    encoding = fields.get(b"content-encoding")
    accepted = fields.get(b"accept-encoding")
    return Head(
        content_length,
        None if length_text is None else parse_header_length(length_text.decode("latin-1")),
        "" if encoding is None else _coding(encoding),
        "" if accepted is None else accepted.decode("latin-1"),
    )


def without_upgrade(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request for HTTP/1.1 without what offers another protocol."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in (b"upgrade", b"http2-settings"))  # noqa: PLW2901
        if name not in (b"upgrade", b"http2-settings") and (value or name != b"connection"):
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def has_droppable_body(headers: Headers) -> bool:
    """Return whether the body of a refused request may be read and dropped: it is small, and its client surely sends it."""
    fields = dict(headers)
    if b"transfer-encoding" in fields or b"expect" in fields:
        return False
    return int(fields.get(b"content-length", b"0")) <= DIRECT_SIZE


def check_size(head: Head, limits: RequestLimits, is_generate: bool) -> None:
    """Check the sizes that a head announces. Raises INVALID_ARGUMENT when one is over the limit."""
    limit = limits.max_json_size_bytes
    json_size = head.content_length if head.header_length is None or is_generate else head.header_length
    # A raw binary request is one tensor: it counts as a whole, and so does everything compressed.
    if head.header_length == 0 or head.encoding:
        json_size = head.content_length
    if json_size > limit:
        raise invalid_argument(
            f"request JSON size of {json_size} bytes exceeds the limit of {limit} bytes, raise it with --http-max-input-size"
        )


def make_body(head: Head, limits: RequestLimits) -> Body:
    """Return where the body goes; one of unknown length may be as long as the limit beside its JSON part."""
    json_length = head.header_length or 0
    return Body(head.content_length, limits.max_json_size_bytes + json_length, json_length)


@dataclass(frozen=True, slots=True)
class OpenedHead:
    """A hot request's head, read. `extra` are the header lines of every response, `forwarded` the parameters that its headers
    make. `refusal` is the status and text of a request that is refused by its head although its body is taken, else None.
    `client` is who asks, where clients share models fairly.
    """

    route: HotRoute
    head: Head
    extra: bytes
    keep_alive: bool
    forwarded: Mapping[str, str]
    refusal: tuple[int, str] | None = None
    client: str = ""


class AnswerMemory(Protocol):
    """Where answers of the response cache are remembered together with the requests that got them."""

    def learn(self, data: bytes, kept: KeptAnswer, response: bytes) -> None:
        """Remember that `data`, exactly one request, was answered with the bytes `response`, which say `kept`."""


@dataclass(frozen=True, slots=True)
class HotContext:
    """What all hot requests of a site are answered with."""

    service: InferenceService
    limits: RequestLimits
    templates: CallTemplates
    response_templates: ResponseTemplates
    json_helper: JsonHelper
    codec_thread: CodecThread
    answers: AnswerMemory


class HotExchange(Exchange):
    """A hot request. The connection fills `body`, puts all of it into `content`, and calls `start`. `source` are the bytes of
    the whole request where it came in one piece.
    """

    __slots__ = ("body", "content", "context", "handle", "opened", "source")

    body: Body

    def __init__(self, connection: Transmitter, context: HotContext, opened: OpenedHead) -> None:
        super().__init__(connection, opened.extra, opened.keep_alive)
        self.context = context
        self.opened = opened
        self.content: Buffer = b""
        self.source = b""
        self.handle: InferHandle | None = None

    def start(self) -> None:
        """See `Exchange.start`."""
        content, self.content = self.content, b""
        encoding = self.opened.head.encoding
        try:
            if encoding and encoding != "identity":
                if self._takes_coding(encoding):
                    self._unpack(content, encoding)
            else:
                self.answer(content)
        except InferenceServerError as error:
            self.respond_error(error)

    def _takes_coding(self, encoding: str) -> bool:
        """Return whether bodies may have this coding; answer with those that they may have when not."""
        try:
            check_coding(encoding)
        except InferenceServerError as error:
            self.respond_error(error, _ACCEPTED_CODINGS)
            return False
        return True

    def _unpack(self, content: Buffer, encoding: str) -> None:
        limit = self.context.limits.max_json_size_bytes
        if len(content) > LARGE_PACKED_BYTES:
            self.context.codec_thread.submit(lambda: decompress(content, encoding, limit), self._take_unpacked)
        else:
            self.answer(decompress(content, encoding, limit))

    def _take_unpacked(self, content: Buffer | InferenceServerError) -> None:
        self.go_on(content, self.answer)

    def go_on(self, result: Any, step: Callable[[Any], None]) -> None:
        """Take the next step with what another thread or process has made, or with the error it made instead, unless the client
        has gone meanwhile.
        """
        if self.has_ended:
            return
        if isinstance(result, InferenceServerError):
            # Not raised again: its traceback would hold this frame, this frame the error, and both what was read so far.
            self.respond_error(result)
            return
        try:
            step(result)
        except InferenceServerError as error:
            self.respond_error(error)
        except Exception:
            self.respond_fault()

    def answer(self, body: Buffer) -> None:
        """Decode `body` and put the question to the service. May raise InferenceServerError."""
        raise NotImplementedError

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        raise NotImplementedError

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: a single response is bounded by itself."""
        return True

    def cancel(self) -> None:
        """See `Exchange.cancel`."""
        super().cancel()
        if self.handle is not None:
            self.handle.cancel()


class RefusedExchange(HotExchange):
    """A request that is refused by its head, whose small body is read and dropped, so that the connection can go on."""

    __slots__ = ()

    def start(self) -> None:
        """See `Exchange.start`."""
        status, text = self.opened.refusal or (400, "")
        self.respond(status, reply.JSON, [error_body(text)])


def _coding(value: bytes) -> str:
    return value.decode("latin-1").strip().lower()


def _refuse_duplicates(headers: Headers) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise invalid_argument(f"the header '{name.decode()}' is there {names.count(name)} times, it may be there once")
