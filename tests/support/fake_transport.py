"""A transport without a socket: it keeps what is written, and feeds a protocol as a loop would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class FakeTransport(asyncio.Transport):
    """`written` is everything that was sent; `protocol` gets what is fed, unless it asked to pause."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol: Any = protocol
        self.written = b""
        self.is_closed = self.is_paused = False
        self._waiting = b""
        protocol.connection_made(self)

    def feed(self, data: bytes) -> None:
        """Give the protocol `data`, or keep it while reading is paused."""
        self._waiting += data
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and not self.is_paused and not self.is_closed:
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer = self.protocol.get_buffer(-1)
                size = min(len(buffer), len(self._waiting))
                buffer[:size] = self._waiting[:size]
                self._waiting = self._waiting[size:]
                self.protocol.buffer_updated(size)
            else:
                data, self._waiting = self._waiting, b""
                self.protocol.data_received(data)

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def writelines(self, parts: Iterable[Any]) -> None:
        self.written += b"".join(bytes(part) for part in parts)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        return

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
