"""HTTP by hand, for what no client library would send."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Sequence
from typing import Any


def post(path: str, body: bytes, *lines: str) -> bytes:
    """Return the bytes of a POST request; `lines` are more header lines."""
    head = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def chunked(path: str, *chunks: bytes, lines: tuple[str, ...] = (), end: bytes = b"0\r\n\r\n") -> bytes:
    """Return the bytes of a POST request in chunks; `end` are the last chunk and the trailers."""
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", "Transfer-Encoding: chunked", *lines]) + "\r\n\r\n"
    return head.encode("latin-1") + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end


def infer(model: str, data: Sequence[Any], shape: Sequence[int] | None = None, datatype: str = "FP32", **more: Any) -> bytes:
    """Return the bytes of a JSON inference request with one input X."""
    item = {"name": "X", "shape": list(shape or [1, len(data)]), "datatype": datatype, "data": list(data)}
    return post(f"/v2/models/{model}/infer", json.dumps({"inputs": [item], **more}).encode())


class Connection:
    """A socket that reads one response at a time."""

    def __init__(self, host_port: tuple[str, int], timeout_s: float = 10) -> None:
        self.socket = socket.create_connection(host_port)
        self.socket.settimeout(timeout_s)
        self._buffer = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> Connection:
        self.socket.sendall(data)
        return self

    def send_and_read_on(self, data: bytes) -> Connection:
        """Send more than fits into the sockets' buffers: read what is answered meanwhile."""
        sender = threading.Thread(target=self.socket.sendall, args=(data,))
        sender.start()
        while sender.is_alive():
            if select.select([self.socket], [], [], 0.01)[0]:
                self._receive()
        sender.join()
        return self

    def close(self) -> None:
        self.socket.close()

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (names in lower case) and body of the next final response; interim ones are skipped."""
        while True:
            status, headers = self._head()
            if status >= 200:
                return status, headers, self._body(headers)

    def has_data_nowait(self) -> bool:
        """Return whether something is there to be read, the end included."""
        return bool(self._buffer) or bool(select.select([self.socket], [], [], 0)[0])

    def is_at_end(self) -> bool:
        """Wait for more; return whether the server closed the connection and sent nothing more."""
        try:
            return not self._buffer and not self.socket.recv(1)
        except ConnectionResetError:
            return False

    def _head(self) -> tuple[int, dict[str, str]]:
        text = self.until(b"\r\n\r\n").decode("latin-1")
        first, *lines = text.split("\r\n")
        pairs = [line.split(":", 1) for line in lines]
        return int(first.split()[1]), {name.lower(): value.strip() for name, value in pairs}

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.exactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(self.until(b"\r\n"), 16):
            body += self.exactly(size)
            self.exactly(2)
        self.exactly(2)
        return body

    def until(self, mark: bytes) -> bytes:
        """Return what comes before `mark`, which is taken too."""
        while mark not in self._buffer:
            self._receive()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        received = bytearray(self._buffer)
        while len(received) < size:
            self._buffer = b""
            self._receive()
            received += self._buffer
        self._buffer = bytes(received[size:])
        return bytes(received[:size])

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(f"the server closed the connection after {self._buffer[-200:]!r}")
        self._buffer += data
