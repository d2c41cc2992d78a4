"""Who a request is from, where clients share models fairly.

Owns how a name is found in a request's head. Doesn't own weights, nor whether the client may ask (`access`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from naiad.config.options.scheduling_options import ClientKey
from naiad.frontends.api_keys import ApiKeys

Headers = Sequence[tuple[bytes, bytes]]
ClientReader = Callable[[Headers], str]
"""Returns the client's name by the headers of a request, whose names are in lower case; "" for one without."""

# A longer name is as good as its beginning: it is kept as long as its client has requests queued.
_LONGEST_NAME = 256


def client_reader(key: ClientKey | None, api_keys: ApiKeys | None) -> ClientReader | None:
    """Return what tells clients apart by `key`, None when nobody wants to know."""
    if key is None:
        return None
    if key.header:
        wanted = key.header.encode()
        return lambda headers: _value(headers, wanted)
    return None if api_keys is None else api_keys.client_of


def _value(headers: Headers, wanted: bytes) -> str:
    for name, value in headers:
        if name == wanted:
            return value[:_LONGEST_NAME].decode("latin-1")
    return ""
