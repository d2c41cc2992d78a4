"""What all connections of one gRPC listener share: the RPCs, who may call them, heads that were read before.

Owns these. `server.assembly` makes it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from naiad.errors import unauthenticated, unavailable, unimplemented
from naiad.frontends.access import AccessRules
from naiad.frontends.codec_thread import CodecThread
from naiad.frontends.grpc.call import Metadata, RpcMethod
from naiad.frontends.grpc.options import GrpcOptions
from naiad.request.call import Buffer
from naiad.wire.compression import decompress
from naiad.wire.grpc.head import CallHead, read_head

if TYPE_CHECKING:
    from naiad.frontends.grpc.connection.connection import GrpcConnection
    from naiad.frontends.grpc.web.call import WebCall

LARGE_PACKED_BYTES = 4096
"""Larger messages are unpacked elsewhere: what unpacks to a thousand times this would still be some milliseconds."""
_MOST_HEADS = 1024
_LONGEST_HEAD_BYTES = 2048
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class GrpcSite:
    """See the module. Loop thread only."""

    def __init__(self, methods: Sequence[RpcMethod], options: GrpcOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.connections: set[GrpcConnection] = set()
        # Those that came over the HTTP listener; they are refused once this one has stopped.
        self.web_calls: set[WebCall] = set()
        self.has_stopped = False
        self.codec_thread = CodecThread(loop, "naiad-grpc-codec")
        self._methods = {method.path: method for method in methods}
        self._heads: dict[tuple[tuple[bytes, bytes], ...], CallHead] = {}
        self._access = AccessRules(options.restricted, "triton-grpc-protocol-", "protocol", options.api_keys)

    def admit(self, connection: GrpcConnection) -> bool:
        """Take a new connection; return False when there are too many."""
        if len(self.connections) >= self.options.max_connections:
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: GrpcConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)

    def head(self, fields: tuple[tuple[bytes, bytes], ...]) -> CallHead:
        """Return what a request's head says; one that came before to the byte is known."""
        head = self._heads.get(fields)
        if head is None:
            head = read_head(fields)
            # Most clients say how much of their time is left, so no two of those heads are equal.
            if head.timeout_s is None and sum(len(name) + len(value) for name, value in fields) <= _LONGEST_HEAD_BYTES:
                if len(self._heads) >= _MOST_HEADS:
                    self._heads.clear()
                self._heads[fields] = head
        return head

    def method(self, path: bytes, metadata: Metadata) -> RpcMethod:
        """Return the RPC of a path.

        Raises UNAUTHENTICATED without a valid API key, UNIMPLEMENTED when there is none and UNAVAILABLE when it is restricted.
        """
        method = self._methods.get(path)
        refusal = self._access.check("" if method is None else method.category, metadata)
        if refusal is not None:
            raise unauthenticated(refusal.text) if refusal.challenge else unavailable(refusal.text)
        if method is None:
            name = path[:200].decode("latin-1")
            raise unimplemented(f"there is no RPC '{name}' here")
        return method

    def unpack(self, data: Buffer, coding: str) -> Buffer:
        """Return a request message unpacked. Raises InferenceServerError for what is no `coding` and for too large a one."""
        return decompress(data, coding, self.options.max_message_size)

    def pack(self, message: Sequence[Buffer], coding: str) -> bytes:
        """Return a response message packed with gzip or deflate, which is zlib's form here as in HTTP."""
        window = _GZIP_WINDOW if coding == "gzip" else zlib.MAX_WBITS
        packer = zlib.compressobj(self.options.response_compression_level, zlib.DEFLATED, window)
        return b"".join([*map(packer.compress, message), packer.flush()])
