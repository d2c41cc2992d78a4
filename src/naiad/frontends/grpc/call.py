"""The seam between RPCs and what carries them: an HTTP/2 stream, or a gRPC-Web request.

Owns the two protocols and a call's head. RPCs know no frames, transports know no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from naiad.errors import InferenceServerError
from naiad.request.call import Buffer

SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."
"""What a call is told that comes too late; existing clients know the words."""

Metadata = Sequence[tuple[bytes, bytes]]

MAX_UNREAD_BYTES = 1 << 20
"""A client that leaves more of a call's messages unread is waited for."""


class CallTransport(Protocol):
    """The way back of one RPC. Loop thread only; nothing raises, and after the end everything is ignored."""

    metadata: Metadata
    """The request's header fields as received, names in lower case; `-bin` values are still in base64."""

    deadline_ns: int | None
    """When the client gives the call up, a monotonic time; None when it doesn't say."""

    def send(self, message: Sequence[Buffer]) -> None:
        """Send one message: its bytes in order, without gRPC's prefix. They may be reused afterwards."""

    def finish(self, error: InferenceServerError | None = None) -> None:
        """End the RPC with status OK, or with the status and text of `error`."""

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """Return whether the client keeps up with what was sent. When not, `callback` is called once as soon as it does again
        or is gone.
        """

    def hold_requests(self, is_held: bool) -> None:
        """Take no further messages from the client for now (it runs out of window), or go on taking them."""


class Rpc(Protocol):
    """One RPC in progress, as its transport sees it. Loop thread only. May raise InferenceServerError, which ends the RPC."""

    def on_message(self, message: Buffer) -> None:
        """Take a whole request message, unpacked; it stays unchanged."""

    def on_half_close(self) -> None:
        """The client sends nothing further."""

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """The RPC has ended without this side's doing: the client cancelled or is gone (None), or its deadline passed or the
        server stops (`error`, whose status was sent).
        """


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """One RPC. `category` is the group by which it can be restricted ("health", "inference", …). `start` makes its `Rpc`.

    From `max_unread_bytes` on that its client leaves unread, `when_writable` says no; 1 is at the first. One that
    `ends_at_drain` ends its calls by itself when the server drains: a stop waits for that, and not until clients have read it.
    """

    path: bytes
    category: str
    start: Callable[[CallTransport], Rpc]
    max_unread_bytes: int = MAX_UNREAD_BYTES
    ends_at_drain: bool = False
