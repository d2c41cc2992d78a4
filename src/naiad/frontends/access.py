"""Restricted APIs: groups of endpoints, or of RPCs, that answer only requests with a certain header and value.

Owns the check. The rule comes from Triton's `--http-restricted-api` and `--grpc-restricted-protocol`; it is applied before
anything else is looked at, the method included. Header names are compared without regard to case, values exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest

from naiad.config.options import RestrictedGroup


@dataclass(frozen=True, slots=True)
class _Key:
    """What opens an API: `header` is the name in lower case, as ASGI servers give it."""

    header: bytes
    value: bytes
    refusal: str


class AccessRules:
    """The restricted groups of one listener. Without any, `check` costs one look-up in an empty dict.

    `header_prefix` stands before the name of each group's header; `what` is what a refusal says is restricted.
    """

    __slots__ = ("_key_of_api",)

    def __init__(self, groups: Iterable[RestrictedGroup], header_prefix: str = "", what: str = "API") -> None:
        self._key_of_api: dict[str, _Key] = {}
        for group in groups:
            header = header_prefix + group.header
            key = _Key(
                header.lower().encode(),
                group.value.encode(),
                f"This {what} is restricted, expecting header '{header}'",
            )
            self._key_of_api.update(dict.fromkeys(group.apis, key))

    def check(self, api: str, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Return None when a request with these headers (names in lower case) may use `api`, else the text of its refusal."""
        key = self._key_of_api.get(api)
        if key is None:
            return None
        # compare_digest takes as long for a near miss as for a far one, so that the value can't be found byte by byte.
        if any(name == key.header and compare_digest(value, key.value) for name, value in headers):
            return None
        return key.refusal

    def header_of(self, api: str) -> str:
        """Return the name of the header that `api` asks for, in lower case, "" when it isn't restricted."""
        key = self._key_of_api.get(api)
        return "" if key is None else key.header.decode()
