"""What the HTTP frontend needs of the server's options, as one value.

Owns nothing but that value. `server.assembly` makes it from the flags.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad.config.options import RestrictedGroup
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.clients import ClientReader


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Settings of one HTTP listener; the defaults are those of the flags.

    `max_input_size_bytes` bounds the JSON of a request and every body of the app. `cors_origins` are the web origins that may
    call the server, `*` for all, none by default. `restricted` groups answer only with their header. `header_forward_pattern`
    is an RE2 expression, "" for none. With `api_keys`, requests need one. `client_of` is there where clients share models
    fairly. Time-outs are in seconds.
    """

    max_input_size_bytes: int = 64 << 20
    cors_origins: tuple[str, ...] = ()
    restricted: tuple[RestrictedGroup, ...] = ()
    api_keys: ApiKeys | None = None
    header_forward_pattern: str = ""
    client_of: ClientReader | None = None
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keep_alive_timeout_s: float = 75.0
    max_connections: int = 4096
