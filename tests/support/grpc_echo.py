"""The gRPC connections of the server, listening in a process of their own with the simplest RPCs: no models, no `naiad serve`.

Owns the process, and the RPCs: ServerLive answers each message with `live`, ModelInfer with the message itself, and
ModelStreamInfer each message of a stream with itself. Run as a program it is the server: it prints its address.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

MAX_STREAMS = 32
MAX_MESSAGE_BYTES = 64 << 20


class EchoProcess:
    """One server process. `grpc` is its host:port."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(Path(__file__))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.grpc = self.process.stdout.readline().strip()

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """End the server and return what it wrote to stderr."""
        self.process.terminate()
        return self.process.communicate(timeout=10)[1]


def _methods() -> list:
    from naiad.frontends.grpc.call import RpcMethod

    class Echo:
        """Answers each message, and ends with the first or with the client's side of the stream."""

        def __init__(self, transport, answer: bytes | None = None, is_stream: bool = False) -> None:
            self.transport = transport
            self.answer = answer
            self.is_stream = is_stream

        def on_message(self, message) -> None:
            self.transport.send([message if self.answer is None else self.answer])
            if not self.is_stream:
                self.transport.finish()

        def on_half_close(self) -> None:
            self.transport.finish()

        def on_cancel(self, error) -> None:
            pass

    service = b"/inference.GRPCInferenceService/"
    return [
        RpcMethod(service + b"ServerLive", "health", lambda transport: Echo(transport, b"\x08\x01")),
        RpcMethod(service + b"ModelInfer", "inference", Echo),
        RpcMethod(service + b"ModelStreamInfer", "inference", lambda transport: Echo(transport, is_stream=True)),
    ]


async def _serve() -> None:
    from naiad.frontends.grpc.listener import GrpcListener
    from naiad.frontends.grpc.options import GrpcOptions
    from naiad.frontends.grpc.site import GrpcSite
    from naiad.frontends.sockets import BoundSocket, address_of

    options = GrpcOptions(max_message_size=MAX_MESSAGE_BYTES, max_concurrent_streams=MAX_STREAMS)
    site = GrpcSite(_methods(), options, asyncio.get_running_loop())
    with socket.create_server(("127.0.0.1", 0), backlog=128) as sock:
        sys.stdout.write("{}:{}\n".format(*sock.getsockname()))
        sys.stdout.flush()
        await GrpcListener(site, BoundSocket(sock, address_of(sock))).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
