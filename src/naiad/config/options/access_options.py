"""The options of API keys and their flags; a part of the one table, whose whole is `server_options`.

Owns what a key may look like, and forgets it: from here on there is only its digest. Doesn't own the file of keys nor the check
(`frontends.api_keys`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from naiad.config.options.composite import HTTP_APIS
from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import LocalPath

KEY_RULE = "16 to 512 characters of visible ASCII without spaces"
OPENABLE = (*HTTP_APIS, "metrics", "docs", "reflection")
"""The groups that can be opened: those of the restricted APIs, the page of metrics, the page /docs and gRPC's reflection."""
OPEN_BY_DEFAULT = ("health", "metrics")

_ACCESS = Category.ACCESS
_KEY = re.compile(r"[\x21-\x7e]{16,512}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that clients may send, as its SHA-256 digest, and the name that its owner goes by, "" for none."""

    digest: bytes = field(repr=False)
    name: str = ""

    @classmethod
    def of(cls, text: str, name: str = "") -> ApiKey:
        """Return the key that is written so. Raises ValueError, without the text, for what can be none (`KEY_RULE`)."""
        if not _KEY.fullmatch(text):
            raise ValueError
        return cls(sha256(text.encode("ascii")).digest(), name)


@dataclass(frozen=True, slots=True)
class KeyText:
    """Kind of an API key; read as its digest."""

    metavar: str = "KEY"
    allowed: str = KEY_RULE

    def parse(self, text: str) -> ApiKey:
        """See `Kind.parse`."""
        return ApiKey.of(text)


@dataclass(frozen=True, slots=True)
class OpenGroups:
    """Kind of a list of groups that can be opened, separated by commas; empty for none."""

    metavar: str = "GROUPS"
    allowed: str = f"groups separated by commas, or empty for none; the groups are {', '.join(OPENABLE)}"

    def parse(self, text: str) -> tuple[str, ...]:
        """See `Kind.parse`."""
        names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
        if not set(names) <= set(OPENABLE):
            raise ValueError
        return names


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class AccessOptions:
    """The fields of `ServerOptions` for API keys, one field a flag."""

    api_key: tuple[ApiKey, ...] = option(
        Flag(
            "api-key",
            _ACCESS,
            KeyText(),
            (),
            "Answer only requests with this key, or with another that is given, in HTTP's header or gRPC's metadata "
            "'authorization: Bearer KEY'. Without the flag, keys are taken from the environment variable NAIAD_API_KEY, "
            "separated by spaces. Other users may see a command line: --api-key-file is better.",
            default_text="none",
            is_repeatable=True,
            is_ours=True,
            collect=tuple,
            is_secret=True,
            environment="NAIAD_API_KEY",
        )
    )
    api_key_file: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "api-key-file",
            _ACCESS,
            LocalPath(),
            None,
            "As --api-key, for each key in this file: one a line, a name may stand before it; empty lines and those that begin "
            "with # are skipped. SIGHUP reads it again.",
            default_text="none",
            is_ours=True,
        )
    )
    api_key_open: tuple[str, ...] = option(
        Flag(
            "api-key-open",
            _ACCESS,
            OpenGroups(),
            OPEN_BY_DEFAULT,
            "What needs no key when there are any.",
            default_text=",".join(OPEN_BY_DEFAULT),
            is_ours=True,
        )
    )

    @property
    def has_api_keys(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_key) or self.api_key_file is not None


def conflict(options: AccessOptions, restricted_headers: Sequence[str]) -> str:
    """Return what can't be together, "" when all can; `restricted_headers` are those of HTTP's restricted APIs."""
    if not options.has_api_keys:
        if options.api_key_open != OPEN_BY_DEFAULT:
            return "--api-key-open says what needs no key, but there are none: give --api-key-file or --api-key"
    elif any(header.lower() == "authorization" for header in restricted_headers):
        return "--http-restricted-api asks for the header Authorization, which carries the API key: use another header's name"
    return ""
