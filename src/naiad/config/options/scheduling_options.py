"""The options of the response cache and the rate limiter and their flags; a part of the one table, whose whole is
`server_options`.

Owns names, ranges and help, and how the settings of a cache are joined. Doesn't own what the server does with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import Choice, Int
from naiad.errors import invalid_argument

_SCHEDULING = Category.SCHEDULING
_NUMBER = re.compile(r"[0-9]{1,9}")
_SIZE = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The one response cache: `local`, in the server's own memory, of `size_bytes`."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """Kind `<name>:<count>[:<device>]`; read as (name, count, device), device None for every one."""

    metavar: str = "NAME:COUNT[:DEVICE]"
    allowed: str = "<name>:<count> or <name>:<count>:<device> with whole numbers of at least 0"

    def parse(self, text: str) -> tuple[str, int, int | None]:
        """See `Kind.parse`."""
        name, *numbers = text.split(":")
        if not name or len(numbers) not in (1, 2) or not all(map(_NUMBER.fullmatch, numbers)):
            raise ValueError
        return name, int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """Kind `<cache>,<key>=<value>`; read as (cache, key, value)."""

    metavar: str = "CACHE,KEY=VALUE"
    allowed: str = "local,size=<bytes>"

    def parse(self, text: str) -> tuple[str, str, str]:
        """See `Kind.parse`. Everything behind the first "=" is the value."""
        left, equals, value = text.partition("=")
        cache, comma, key = left.partition(",")
        if not (equals and comma and cache and key):
            raise ValueError
        return cache, key, value


def cache_config(settings: Sequence[tuple[str, str, str]]) -> CacheConfig:
    """Return the settings of the one cache joined. Raises ValueError for two caches and what a cache doesn't have."""
    names = list(dict.fromkeys(cache for cache, _, _ in settings))
    if len(names) > 1:
        raise ValueError(f"there can be one cache only, these are {len(names)}: {', '.join(names)}")
    if names[0] != "local":
        raise ValueError(f"there is no cache '{names[0]}', only local (a redis cache isn't built yet)")
    values = {key: value for _, key, value in settings}
    unknown = [key for key in values if key != "size"]
    if unknown:
        raise ValueError(f"cache local has no setting '{unknown[0]}', only size")
    if not _SIZE.fullmatch(values["size"]):
        raise ValueError(f"setting 'size' of cache local must be a whole number of bytes; it is '{values['size']}'")
    return CacheConfig("local", int(values["size"]))


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class SchedulingOptions:
    """The fields of `ServerOptions` for the response cache and the rate limiter, one field a flag."""

    cache_config: CacheConfig | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "cache-config",
            _SCHEDULING,
            CacheSetting(),
            None,
            "Keep answers of models that have response_cache { enable: true }: local,size=BYTES keeps as many bytes in memory.",
            default_text="none",
            is_repeatable=True,
            collect=cache_config,
        )
    )
    response_cache_byte_size: int = option(
        Flag(
            "response-cache-byte-size",
            _SCHEDULING,
            Int(minimum=0),
            0,
            "The older way to say --cache-config=local,size=BYTES; 0 is none.",
            unit="bytes",
        )
    )

    rate_limit: str = option(
        Flag(
            "rate-limit",
            _SCHEDULING,
            Choice(("off", "execution_count")),
            "off",
            "Whether instances wait for the resources that their rate_limiter names. execution_count: those that have run "
            "least, times their priority, go first.",
        )
    )
    rate_limit_resource: tuple[tuple[str, int, int | None], ...] = option(
        Flag(
            "rate-limit-resource",
            _SCHEDULING,
            ResourceLimit(),
            (),
            "How many there are of a resource, for every device or one; otherwise as many as the instance needs that "
            "needs most.",
            default_text="none",
            is_repeatable=True,
            collect=tuple,
        )
    )

    @property
    def cache(self) -> CacheConfig | None:
        """The cache that is wanted, None for none; `check_cache` has seen that it is said once."""
        if self.response_cache_byte_size:
            return CacheConfig("local", self.response_cache_byte_size)
        return self.cache_config


def check_cache(options: SchedulingOptions) -> None:
    """Raise INVALID_ARGUMENT for a cache that is said twice."""
    if options.cache_config is not None and options.response_cache_byte_size:
        raise invalid_argument("--response-cache-byte-size is the older form of --cache-config: give one of them")
