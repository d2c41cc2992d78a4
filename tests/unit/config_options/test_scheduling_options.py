"""The flags of the response cache and the rate limiter."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.config.options import parse_options
from naiad.config.options.scheduling_options import CacheConfig, ClientKey, RedisSettings
from naiad.errors import Code, InferenceServerError


def refusal(*arguments: str) -> str:
    with pytest.raises(InferenceServerError) as caught:
        parse_options(["/models", *arguments])
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_without_a_flag_there_is_no_cache_and_no_limiter():
    options = parse_options([str(Path("/models"))])
    assert (options.cache, options.rate_limit, options.rate_limit_resource) == (None, "off", ())


@pytest.mark.parametrize(
    "arguments", [["--cache-config=local,size=99"], ["--cache-config", "local,size=99"], ["--response-cache-byte-size=99"]]
)
def test_the_local_cache_has_a_size_in_bytes(arguments):
    assert parse_options(["/models", *arguments]).cache == CacheConfig(99)


def test_a_size_of_0_in_the_older_form_is_no_cache():
    assert parse_options(["/models", "--response-cache-byte-size=0"]).cache is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cache-config=local"], "--cache-config must be local,size=<bytes> or redis,<setting>=<value>"),
        (["--cache-config=local,size"], "it is 'local,size'"),
        (
            ["--cache-config=local,size=1k"],
            "setting 'size' of cache local must be a whole number from 0 to 10",
        ),
        (["--cache-config=local,size=-1"], "it is '-1'"),
        (["--cache-config=local,colour=1"], "cache local has no setting 'colour', only size"),
        (["--cache-config=disk,size=1"], "there is no cache 'disk', only local and redis"),
        (
            ["--cache-config=local,size=1", "--cache-config=redis,host=a"],
            "there can be one cache only, these are 2: local, redis",
        ),
        (
            ["--cache-config=local,size=1", "--response-cache-byte-size=1"],
            "--response-cache-byte-size is the older form of --cache-config: give one of them",
        ),
        (["--cache-config=redis,port=1"], "cache redis needs the setting 'host'"),
        (["--cache-config=redis,host=a", "--cache-config=redis,sni=b"], "cache redis has no setting 'sni', only host, port"),
        (["--cache-config=redis,host=a", "--cache-config=redis,port=0"], "setting 'port' of cache redis must be"),
        (["--rate-limit=sometimes"], "--rate-limit must be off or execution_count; it is 'sometimes'"),
        (["--rate-limit-resource=R"], "--rate-limit-resource must be <name>:<count> or <name>:<count>:<device>"),
        (["--rate-limit-resource=R:x"], "it is 'R:x'"),
        (["--rate-limit-resource=:1"], "it is ':1'"),
        (["--rate-limit-resource=R:1:2:3"], "it is 'R:1:2:3'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(arguments, text):
    assert text in refusal(*arguments)


def test_resources_are_of_every_device_or_of_one():
    options = parse_options(
        ["/models", "--rate-limit=EXECUTION_COUNT", "--rate-limit-resource=R:2", "--rate-limit-resource=R:3:0"]
    )
    assert (options.rate_limit, options.rate_limit_resource) == ("execution_count", (("R", 2, None), ("R", 3, 0)))


def test_redis_has_its_settings_and_the_password_comes_from_the_environment_and_is_never_shown(monkeypatch):
    monkeypatch.setenv("TRITONCACHE_REDIS_PASSWORD", "s3cret")
    texts = ("host=h", "port=7", "db=2", "pool_size=3", "connect_timeout=50", "tls_enabled=true", "cacert=/ca.pem")
    config = parse_options(["/models", *(f"--cache-config=redis,{text}" for text in texts)]).cache
    wanted = RedisSettings("h", 7, password="s3cret", db=2, connect_timeout_ms=50, pool_size=3, is_tls=True, cacert="/ca.pem")
    assert (config, "s3cret" in repr(config)) == (CacheConfig(redis=wanted), False)


def test_without_a_flag_nobody_asks_who_a_client_is():
    assert parse_options(["/models"]).client_weights is None


def test_clients_are_told_apart_by_a_header_or_their_api_key():
    by_header = parse_options(["/models", "--fairness-key=header:X-Tenant"])
    assert (by_header.fairness_key, by_header.client_weights) == (ClientKey("x-tenant"), {})
    by_key = parse_options(["/models", "--fairness-key=api-key", "--api-key=0123456789abcdef"])
    assert by_key.fairness_key == ClientKey()


def test_weights_add_up_and_the_last_one_of_a_client_counts():
    weights = ["--fairness-weight=gold=10", "--fairness-weight=a=b=2", "--fairness-weight", "gold=5"]
    assert parse_options(["/models", "--fairness-key=header:x", *weights]).client_weights == {"gold": 5, "a=b": 2}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--fairness-key=tenant"], "--fairness-key must be api-key or header:<name of a header>"),
        (["--fairness-key=header:"], "--fairness-key must be api-key or header:<name of a header>"),
        (["--fairness-key=header:x y"], "--fairness-key must be api-key or header:<name of a header>"),
        (["--fairness-key=header:x", "--fairness-weight=a=0"], "with a whole number from 1 to 1000 as the weight"),
        (["--fairness-key=header:x", "--fairness-weight=a=1001"], "with a whole number from 1 to 1000 as the weight"),
        (["--fairness-key=header:x", "--fairness-weight=10"], "with a whole number from 1 to 1000 as the weight"),
        (["--fairness-weight=a=2"], "says what clients get, but not who they are: give --fairness-key"),
        (["--fairness-key=api-key"], "--fairness-key=api-key needs API keys"),
    ],
)
def test_wrong_shares_of_clients_are_refused_by_name(arguments, text):
    assert text in refusal(*arguments)
