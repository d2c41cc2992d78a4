"""The transport of one RPC without a connection: what was sent and how it ended, and a client that may stop reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class FakeCall:
    """`end` is None for a good end and the error for a bad one, "open" until then; `has_ended` can be waited for."""

    def __init__(self) -> None:
        self.metadata: tuple[tuple[bytes, bytes], ...] = ()
        self.deadline_ns: int | None = None
        self.sent: list[bytes] = []
        self.end: Any = "open"
        self.has_ended = asyncio.Event()
        self.is_reading = True
        self.waiting: list[Callable[[], None]] = []

    def send(self, message: Any) -> None:
        if self.end == "open":
            self.sent.append(b"".join(map(bytes, message)))

    def finish(self, error: Any = None) -> None:
        if self.end == "open":
            self.end = error
            self.has_ended.set()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        if not self.is_reading:
            self.waiting.append(callback)
        return self.is_reading

    def hold_requests(self, is_held: bool) -> None:
        raise AssertionError("no RPC under test holds its client's messages back")

    def read_again(self) -> None:
        """Let the client read: those who wait are called."""
        self.is_reading = True
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()
