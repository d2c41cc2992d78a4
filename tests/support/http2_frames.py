"""HTTP/2 by hand, for what no client library would send: frames built byte by byte, and a socket that reads frames.

Owns framing and the simplest HPACK (literals, no table, no Huffman). Heads and trailers of the server are decoded by ngh2's
client, to which every head that came is shown.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import ngh2

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 5, 6, 7, 8, 9
ENHANCE_YOUR_CALM = 11

ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 2, 3, 4, 5

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SERVICE = b"/inference.GRPCInferenceService/"
LIVE = SERVICE + b"ServerLive"
INFER = SERVICE + b"ModelInfer"
STREAM = SERVICE + b"ModelStreamInfer"

Fields = Iterable[tuple[bytes, bytes]]


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    """Return a frame; `length` lies about the payload's size."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + payload


def data(stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame(DATA, flags, stream_id, payload)


def headers(stream_id: int, fields: Fields, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream_id, block(fields))


def continuation(stream_id: int, fragment: bytes, flags: int = END_HEADERS) -> bytes:
    return frame(CONTINUATION, flags, stream_id, fragment)


def priority(stream_id: int) -> bytes:
    return frame(PRIORITY, 0, stream_id, struct.pack(">IB", 0, 15))


def reset(stream_id: int, error_code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream_id, struct.pack(">I", error_code))


def settings(*values: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *value) for value in values))


def ping(payload: bytes = b"12345678", flags: int = 0) -> bytes:
    return frame(PING, flags, 0, payload)


def goaway(error_code: int = NO_ERROR, stream_id: int = 0) -> bytes:
    return frame(GOAWAY, 0, stream_id, struct.pack(">II", 0, error_code))


def window_update(stream_id: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, struct.pack(">I", size))


def integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Return HPACK's form of an integer (RFC 7541, 5.1) whose first byte has the bits `first` above the prefix."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    found = bytearray([first | most])
    value -= most
    while value >= 128:
        found.append(value % 128 | 128)
        value //= 128
    return bytes([*found, value])


def literal(name: bytes, value: bytes) -> bytes:
    """Return a literal field without indexing, with a new name."""
    return b"\x00" + integer(len(name), 7) + name + integer(len(value), 7) + value


def block(fields: Fields) -> bytes:
    return b"".join(literal(name, value) for name, value in fields)


def call_fields(path: bytes = LIVE, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the head of a gRPC call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"test"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]


def message(payload: bytes = b"", flag: int = 0, length: int | None = None) -> bytes:
    """Return a gRPC message with its prefix; `length` lies about the payload's size."""
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def call(stream_id: int, path: bytes = LIVE, body: bytes = message(), *more: tuple[bytes, bytes]) -> bytes:
    """Return a whole unary call."""
    return headers(stream_id, call_fields(path, *more)) + data(stream_id, body, END_STREAM)


@dataclass(frozen=True)
class Frame:
    """A frame as it came."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def error_code(self) -> int:
        """The code of an RST_STREAM or a GOAWAY."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4], "big")

    def ends(self, stream_id: int) -> bool:
        """Return whether it is the last of the stream."""
        ended = self.kind in (DATA, HEADERS) and self.flags & END_STREAM
        return self.stream_id == stream_id and bool(ended or self.kind == RST_STREAM)


class FrameReader:
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes) -> list[Frame]:
        """Return the frames that `received` completes."""
        self._buffer += received
        found = []
        while len(self._buffer) >= 9 and len(self._buffer) >= (end := 9 + int.from_bytes(self._buffer[:3], "big")):
            kind, flags, stream_id = struct.unpack(">BBI", self._buffer[3:9])
            found.append(Frame(kind, flags, stream_id & 0x7FFFFFFF, bytes(self._buffer[9:end])))
            del self._buffer[:end]
        return found


def fields_of(frames: list[Frame], stream_id: int) -> dict[bytes, bytes]:
    """Return the fields of a stream's head and trailers among all frames that a server sent on a connection."""
    client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(peer_max_concurrent_streams=1 << 20))
    client.initiate_connection()
    for _ in range(1, max([stream_id, *(each.stream_id for each in frames)]) + 1, 2):
        client.send_request(call_fields(), end_stream=False)
    client.data_to_send()
    heads = [
        frame(each.kind, each.flags, each.stream_id, each.payload) for each in frames if each.kind in (HEADERS, CONTINUATION)
    ]
    client.receive_data(settings() + b"".join(heads))
    found: dict[bytes, bytes] = {}
    for event in client.events():
        if isinstance(event, (ngh2.ResponseReceived, ngh2.TrailersReceived)) and event.stream_id == stream_id:
            found.update(event.headers)
    return found


class FrameConnection:
    """A socket that has sent the preface and its SETTINGS, and answers nothing by itself.

    `frames` are all that came; `is_closed` says whether the server closed.
    """

    def __init__(self, host_port: tuple[str, int], *first: tuple[int, int], preface: bytes = PREFACE) -> None:
        self.socket = socket.create_connection(host_port)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(10)
        self.frames: list[Frame] = []
        self.is_closed = False
        self._reader = FrameReader()
        if preface:
            self.send(preface + settings(*first))

    def __enter__(self) -> FrameConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, sent: bytes) -> FrameConnection:
        """Send bytes; a server that has closed already is no failure."""
        try:
            self.socket.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            return self
        return self

    def send_and_read_on(self, sent: bytes) -> FrameConnection:
        """Send more than fits into the sockets' buffers: read what is answered meanwhile."""
        sender = threading.Thread(target=self.send, args=(sent,))
        sender.start()
        while sender.is_alive():
            if not self.is_closed and select.select([self.socket], [], [], 0.01)[0]:
                self._receive()
        sender.join()
        return self

    def read_until(self, is_last: Callable[[Frame], bool]) -> Frame | None:
        """Return the first frame, of those that came before too, that `is_last`; None when the server closed before."""
        looked_at = 0
        while True:
            while looked_at < len(self.frames):
                looked_at += 1
                if is_last(self.frames[looked_at - 1]):
                    return self.frames[looked_at - 1]
            if self.is_closed:
                return None
            self._receive()

    def read_end(self, stream_id: int) -> Frame | None:
        """Return the last frame of a stream."""
        return self.read_until(lambda each: each.ends(stream_id))

    def grpc_status(self, stream_id: int) -> int:
        """Wait for the end of a call and return its grpc-status; -1 when it has none."""
        self.read_end(stream_id)
        return int(fields_of(self.frames, stream_id).get(b"grpc-status", b"-1"))

    def http_status(self, stream_id: int) -> int:
        """Wait for the end of a stream and return its status of HTTP; -1 when it has none."""
        self.read_end(stream_id)
        return int(fields_of(self.frames, stream_id).get(b":status", b"-1"))

    def is_cut(self) -> bool:
        """Wait until the server closes the connection or says with a GOAWAY why it will; return whether it did."""
        self.read_until(lambda each: each.kind == GOAWAY)
        return True

    def _receive(self) -> None:
        try:
            received = self.socket.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        self.is_closed = not received
        self.frames += self._reader.feed(received)
