"""What the gRPC frontend needs of the server's options, as one value.

Owns nothing but that value. `server.assembly` makes it from the flags.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad.config.options import RestrictedGroup
from naiad.frontends.api_keys import ApiKeys


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """When the server asks whether a quiet client is still there, and which pings of clients are too many; seconds.

    `time_s` without anything received: a ping, and `timeout_s` later the end. A ping of a client within
    `min_ping_interval_s` of the last one, with nothing sent to it between, is a strike (with no call open within two hours,
    unless `permits_without_calls`); more than `max_ping_strikes` (0: any number) end the connection. `max_age_s` and
    `max_age_grace_s` are 0 for no limit.
    """

    time_s: float = 7200.0
    timeout_s: float = 20.0
    permits_without_calls: bool = False
    min_ping_interval_s: float = 300.0
    max_ping_strikes: int = 2
    max_age_s: float = 0.0
    max_age_grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Settings of one gRPC listener; the defaults are those of the flags.

    `response_compression_level` is zlib's level for responses of inference, 0 for none. With `api_keys`, calls need one.
    """

    max_message_size: int = 2**31 - 1
    max_concurrent_streams: int = 4096
    max_connections: int = 4096
    response_compression_level: int = 0
    restricted: tuple[RestrictedGroup, ...] = ()
    api_keys: ApiKeys | None = None
    keep_alive: KeepAlive = KeepAlive()
