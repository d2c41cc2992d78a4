"""gRPC-Web by hand: bodies of both forms, and answers taken apart. Knows nothing of the server's code."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from raw_http import post

SERVICE = "/inference.GRPCInferenceService/"
BINARY, TEXT = "application/grpc-web+proto", "application/grpc-web-text+proto"
FORMS = (BINARY, TEXT)


def frame(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def body(form: str, *frames: bytes) -> bytes:
    """Return frames as a body; in the text form, each is a padded part of its own."""
    return b"".join(map(base64.b64encode, frames)) if "-text" in form else b"".join(frames)


def call(rpc: str, content: bytes, form: str = BINARY, *lines: str) -> bytes:
    """Return the bytes of a request; `rpc` is a method of the inference service, or a path."""
    path = rpc if rpc.startswith("/") else SERVICE + rpc
    return post(path, content, f"Content-Type: {form}", "X-Grpc-Web: 1", "X-User-Agent: grpc-web-javascript/0.1", *lines)


@dataclass(frozen=True)
class Answer:
    messages: list[bytes]
    trailers: dict[str, str]

    @property
    def status(self) -> int:
        return int(self.trailers["grpc-status"])

    @property
    def text(self) -> str:
        return unquote(self.trailers.get("grpc-message", ""))


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield flag and content of each frame; fail when the last is cut off."""
    while data:
        flag, size = struct.unpack(">BI", data[:5])
        assert len(data) >= 5 + size, "a frame is cut off"
        yield flag, data[5 : 5 + size]
        data = data[5 + size :]


def answer(form: str, content: bytes) -> Answer:
    """Take a whole answer apart; fail unless its only frame of trailers is the last."""
    data = decoded(content) if "-text" in form else content
    found = list(frames(data))
    assert [flag for flag, _ in found] == [0] * (len(found) - 1) + [0x80]
    lines = found[-1][1].decode("ascii")
    assert lines.endswith("\r\n")
    trailers = dict(line.split(": ", 1) for line in lines[:-2].split("\r\n"))
    assert all(name == name.lower() for name in trailers)
    return Answer([message for _, message in found[:-1]], trailers)


def decoded(content: bytes) -> bytes:
    """Return what several parts of base64 hold."""
    assert len(content) % 4 == 0
    return b"".join(base64.b64decode(part, validate=True) for part in re.findall(rb"[^=]+={0,2}", content))
