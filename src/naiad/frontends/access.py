"""Who may use which group of endpoints, or of RPCs: with a valid API key, and with the header of a restricted API.

Owns the rule that all frontends share; it is applied before anything else is looked at, the method included. Restricted APIs
are Triton's `--http-restricted-api` and `--grpc-restricted-protocol`: header names are compared without regard to case, values
exactly. Doesn't own the API keys (`api_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest

from naiad.config.options import RestrictedGroup
from naiad.frontends.api_keys import AccessRefusal, ApiKeys


@dataclass(frozen=True, slots=True)
class _Key:
    """What opens an API: `header` is the name in lower case, as ASGI servers give it."""

    header: bytes
    value: bytes
    refusal: AccessRefusal


class AccessRules:
    """The rules of one listener. Without any, `check` costs one look-up in an empty dict.

    `header_prefix` stands before the name of each group's header; `what` is what a refusal says is restricted. With `api_keys`
    a request needs one, first of all.
    """

    __slots__ = ("_api_keys", "_key_of_api")

    def __init__(
        self,
        groups: Iterable[RestrictedGroup],
        header_prefix: str = "",
        what: str = "API",
        api_keys: ApiKeys | None = None,
    ) -> None:
        self._api_keys = api_keys
        self._key_of_api: dict[str, _Key] = {}
        for group in groups:
            header = header_prefix + group.header
            key = _Key(
                header.lower().encode(),
                group.value.encode(),
                AccessRefusal(f"This {what} is restricted, expecting header '{header}'"),
            )
            self._key_of_api.update(dict.fromkeys(group.apis, key))

    def check(self, api: str, headers: Sequence[tuple[bytes, bytes]]) -> AccessRefusal | None:
        """Return None when a request with these headers (names in lower case) may use `api`, else its refusal.

        "" is what belongs to no group, also what doesn't exist.
        """
        if self._api_keys is not None:
            refusal = self._api_keys.check(api, headers)
            if refusal is not None:
                return refusal
        key = self._key_of_api.get(api)
        if key is None:
            return None
        # compare_digest takes as long for a near miss as for a far one, so that the value can't be found byte by byte.
        if any(name == key.header and compare_digest(value, key.value) for name, value in headers):
            return None
        return key.refusal

    @property
    def has_keys(self) -> bool:
        """Whether there are API keys."""
        return self._api_keys is not None

    def needs_key(self, api: str) -> bool:
        """Return whether `api` asks for an API key."""
        return self._api_keys is not None and self._api_keys.needs_key(api)

    def header_of(self, api: str) -> str:
        """Return the name of the header that `api` asks for, in lower case, "" when it isn't restricted."""
        key = self._key_of_api.get(api)
        return "" if key is None else key.header.decode()
