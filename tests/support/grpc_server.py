"""A server process as the tests of gRPC ask it: channels, raw connections, and whether it still serves."""

from __future__ import annotations

from typing import Any

import grpc
from http2_frames import FrameConnection
from tritonclient.grpc import service_pb2, service_pb2_grpc

ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class GrpcServer:
    """Knows the process's gRPC address."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.address: str = process.grpc
        self._pid = process.pid

    @property
    def host_port(self) -> tuple[str, int]:
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def channel(self, *options: tuple[str, object], compression: grpc.Compression | None = None) -> grpc.Channel:
        """Return a channel with a connection of its own."""
        own = [*ANY_SIZE, ("grpc.use_local_subchannel_pool", 1), *options]
        return grpc.insecure_channel(self.address, options=own, compression=compression)

    def check_serves(self) -> None:
        """Fail unless the same process answers a call on a new connection."""
        assert self.process.process.poll() is None, self.process.log()
        assert self.process.pid == self._pid
        with self.channel() as channel:
            assert stub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=5).live

    def connection(self, *first: tuple[int, int]) -> FrameConnection:
        return FrameConnection(self.host_port, *first)


def stub(channel: grpc.Channel) -> service_pb2_grpc.GRPCInferenceServiceStub:
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)
