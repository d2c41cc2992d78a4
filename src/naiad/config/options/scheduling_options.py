"""The options of the response cache, the rate limiter and shares of clients, and their flags; a part of the one table,
whose whole is `server_options`.

Owns names, ranges and help, and how the settings of a cache are read and joined. Doesn't own what the server does with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import Bool, Choice, Int, Text
from naiad.errors import invalid_argument

_SCHEDULING = Category.SCHEDULING
_NUMBER = re.compile(r"[0-9]{1,9}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")

MOST_WEIGHT = 1000
"""The largest weight of a client."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where a Redis server is and how it is asked. Times in milliseconds; the texts of TLS are paths, "" for none."""

    host: str
    port: int = 6379
    user: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    connect_timeout_ms: int = 1000
    socket_timeout_ms: int = 1000
    pool_size: int = 8
    wait_timeout_ms: int = 1000
    is_tls: bool = False
    cert: str = ""
    key: str = ""
    cacert: str = ""
    cacert_dir: str = ""


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The one response cache: in the server's own memory, of `size_bytes`, or in a Redis server."""

    size_bytes: int = 0
    redis: RedisSettings | None = None


_TEXT = Text(is_empty_allowed=False)
_MILLISECONDS = Int(1, 3_600_000)
_LOCAL: Mapping[str, tuple[str, Any]] = {"size": ("size_bytes", Int(0, 10**15))}
_REDIS: Mapping[str, tuple[str, Any]] = {
    "host": ("host", _TEXT),
    "port": ("port", Int(1, 65535)),
    "user": ("user", _TEXT),
    "password": ("password", _TEXT),
    "db": ("db", Int(0, 10**6)),
    "connect_timeout": ("connect_timeout_ms", _MILLISECONDS),
    "socket_timeout": ("socket_timeout_ms", _MILLISECONDS),
    "pool_size": ("pool_size", Int(1, 1000)),
    "wait_timeout": ("wait_timeout_ms", _MILLISECONDS),
    "tls_enabled": ("is_tls", Bool()),
    "cert": ("cert", _TEXT),
    "key": ("key", _TEXT),
    "cacert": ("cacert", _TEXT),
    "cacert_dir": ("cacert_dir", _TEXT),
}
_ENVIRONMENT = {"user": "TRITONCACHE_REDIS_USERNAME", "password": "TRITONCACHE_REDIS_PASSWORD"}


def cache_config(settings: Sequence[tuple[str, str, str]]) -> CacheConfig:
    """Return the settings of the one cache joined. Raises ValueError for two caches and what a cache doesn't have."""
    names = list(dict.fromkeys(cache for cache, _, _ in settings))
    if len(names) > 1:
        raise ValueError(f"there can be one cache only, these are {len(names)}: {', '.join(names)}")
    made: Mapping[str, Callable[[dict[str, str]], CacheConfig]] = {"local": _local, "redis": _redis}
    if names[0] not in made:
        raise ValueError(f"there is no cache '{names[0]}', only local and redis")
    return made[names[0]]({key: value for _, key, value in settings})


def _local(values: dict[str, str]) -> CacheConfig:
    return CacheConfig(**_read("local", values, _LOCAL))


def _redis(values: dict[str, str]) -> CacheConfig:
    for name, variable in _ENVIRONMENT.items():
        if name not in values and os.environ.get(variable):
            values[name] = os.environ[variable]
    if "host" not in values:
        raise ValueError("cache redis needs the setting 'host'")
    return CacheConfig(redis=RedisSettings(**_read("redis", values, _REDIS)))


def _read(cache: str, values: Mapping[str, str], table: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    read = {}
    for name, text in values.items():
        if name not in table:
            raise ValueError(f"cache {cache} has no setting '{name}', only {', '.join(table)}")
        option, kind = table[name]
        try:
            read[option] = kind.parse(text)
        except ValueError as error:
            shown = "" if name == "password" else f"; it is '{text}'"
            raise ValueError(f"setting '{name}' of cache {cache} must be {kind.allowed}{shown}") from error
    return read


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
    allowed: str = "local,size=<bytes> or redis,<setting>=<value>, once for each setting"

    def parse(self, text: str) -> tuple[str, str, str]:
        """See `Kind.parse`. Everything behind the first "=" is the value."""
        left, equals, value = text.partition("=")
        cache, comma, key = left.partition(",")
        if not (equals and comma and cache and key):
            raise ValueError
        return cache, key, value


@dataclass(frozen=True, slots=True)
class ClientKey:
    """By what clients are told apart: the header of this name, in lower case, or their API keys ("")."""

    header: str = ""


@dataclass(frozen=True, slots=True)
class ClientKeyText:
    """Kind `api-key` or `header:<name>`; read as a `ClientKey`."""

    metavar: str = "KEY"
    allowed: str = "api-key or header:<name of a header>"

    def parse(self, text: str) -> ClientKey:
        """See `Kind.parse`."""
        if text == "api-key":
            return ClientKey()
        kind, _, name = text.partition(":")
        if kind != "header" or not _HEADER.fullmatch(name):
            raise ValueError
        return ClientKey(name.lower())


@dataclass(frozen=True, slots=True)
class ClientWeight:
    """Kind `<client>=<weight>`; read as (client, weight)."""

    metavar: str = "CLIENT=WEIGHT"
    allowed: str = f"<client>=<weight>, with a whole number from 1 to {MOST_WEIGHT} as the weight"

    def parse(self, text: str) -> tuple[str, int]:
        """See `Kind.parse`. Everything before the last "=" is the client's name."""
        name, _, weight = text.rpartition("=")
        if not name or not _NUMBER.fullmatch(weight) or not 1 <= int(weight) <= MOST_WEIGHT:
            raise ValueError
        return name, int(weight)


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class SchedulingOptions:
    """The fields of `ServerOptions` for the response cache, the rate limiter and shares of clients, one field a flag."""

    cache_config: CacheConfig | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "cache-config",
            _SCHEDULING,
            CacheSetting(),
            None,
            "Keep answers of models that have response_cache { enable: true }: local,size=BYTES keeps as many bytes in memory; "
            "redis,host=HOST keeps them in a Redis server, with port, user, password (better TRITONCACHE_REDIS_PASSWORD in the "
            "environment), db, pool_size, connect_timeout, socket_timeout, wait_timeout (ms), tls_enabled, cert, key, cacert, "
            "cacert_dir.",
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

    fairness_key: ClientKey | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "fairness-key",
            _SCHEDULING,
            ClientKeyText(),
            None,
            "Let clients share each model fairly, so that none waits behind another's queue. api-key: a client is the name of "
            "its API key; header:NAME: it is the value of that header of HTTP or gRPC's metadata, which somebody you trust "
            "must set.",
            default_text="none",
            is_ours=True,
        )
    )
    fairness_weight: tuple[tuple[str, int], ...] = option(
        Flag(
            "fairness-weight",
            _SCHEDULING,
            ClientWeight(),
            (),
            "How many items a client gets for each one of a client with weight 1, which is everyone's without this flag.",
            default_text="none",
            is_repeatable=True,
            is_ours=True,
            collect=lambda weights: tuple(dict(weights).items()),
        )
    )

    @property
    def client_weights(self) -> Mapping[str, int] | None:
        """The weights by which clients share models, None when they don't."""
        return None if self.fairness_key is None else dict(self.fairness_weight)

    @property
    def cache(self) -> CacheConfig | None:
        """The cache that is wanted, None for none; `check_cache` has seen that it is said once."""
        if self.response_cache_byte_size:
            return CacheConfig(self.response_cache_byte_size)
        return self.cache_config


def check_cache(options: SchedulingOptions) -> None:
    """Raise INVALID_ARGUMENT for a cache that is said twice."""
    if options.cache_config is not None and options.response_cache_byte_size:
        raise invalid_argument("--response-cache-byte-size is the older form of --cache-config: give one of them")


def check_fairness(options: SchedulingOptions, *, has_api_keys: bool) -> None:
    """Raise INVALID_ARGUMENT for weights of clients that nobody tells apart."""
    if options.fairness_key is None:
        if options.fairness_weight:
            raise invalid_argument("--fairness-weight says what clients get, but not who they are: give --fairness-key")
    elif not options.fairness_key.header and not has_api_keys:
        raise invalid_argument("--fairness-key=api-key needs API keys: give --api-key-file or --api-key")
