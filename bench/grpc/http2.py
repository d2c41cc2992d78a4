"""One HTTP/2 client connection over a blocking socket, just enough for gRPC: cheap, so that it isn't what is measured.

Owns the socket and the frames (ngh2). Doesn't own the messages in the bodies.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

import ngh2

from bench.errors import BenchError
from bench.http_infer import Address

READ_BYTES = 256 * 1024
WINDOW_BYTES = 2**30
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Answer:
    """What came back of one call: the body with all its messages, and the fields of headers and trailers."""

    body: bytearray = field(default_factory=bytearray)
    fields: dict[bytes, bytes] = field(default_factory=dict)
    is_ended: bool = False

    @property
    def failure(self) -> str:
        """What is wrong with the call, "" when its status is 0."""
        status = self.fields.get(b"grpc-status")
        return "" if status == b"0" else f"grpc-status {status!r}: {self.fields.get(b'grpc-message', b'').decode()}"


class Connection:
    """An open connection; one call at a time. Every method raises BenchError when the server closes it or is silent."""

    def __init__(self, address: Address) -> None:
        self._authority = str(address).encode()
        self._wire = ngh2.Connection(ngh2.Role.CLIENT)
        self._wire.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: WINDOW_BYTES})
        self._wire.set_local_window_size(WINDOW_BYTES)
        try:
            self._socket = socket.create_connection((address.host, address.port), TIMEOUT_S)
        except OSError as error:
            raise BenchError(f"{address}: no connection ({error})") from error

    def call(self, path: str, body: bytes) -> Answer:
        """Send one call, its side closed, and return what came back when the server has ended it."""
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", self._authority)]
        stream_id = self._wire.send_request([*headers, (b"content-type", b"application/grpc"), (b"te", b"trailers")])
        self._wire.send_data(stream_id, body, end_stream=True)
        answer = Answer()
        try:
            self._flush()
            while not answer.is_ended:
                self._receive(answer)
        except (OSError, ngh2.NGH2Error) as error:
            raise BenchError(f"{path}: the connection failed ({error})") from error
        return answer

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self, answer: Answer) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise BenchError("the server closed the connection during a call")
        self._wire.receive_data(data)
        for event in self._wire.events():
            if isinstance(event, ngh2.DataReceived):
                answer.body += event.data
            elif isinstance(event, (ngh2.ResponseReceived, ngh2.TrailersReceived)):
                answer.fields.update((header[0], header[1]) for header in event.headers)
            elif isinstance(event, (ngh2.StreamClosed, ngh2.StreamReset)):
                answer.is_ended = True
        self._flush()

    def _flush(self) -> None:
        while data := self._wire.data_to_send():
            self._socket.sendall(data)
