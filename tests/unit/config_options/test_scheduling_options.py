"""The flags of the response cache and the rate limiter."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.config.options import parse_options
from naiad.config.options.scheduling_options import CacheConfig
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
    assert parse_options(["/models", *arguments]).cache == CacheConfig("local", 99)


def test_a_size_of_0_in_the_older_form_is_no_cache():
    assert parse_options(["/models", "--response-cache-byte-size=0"]).cache is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cache-config=local"], "--cache-config must be local,size=<bytes>; it is 'local'"),
        (["--cache-config=local,size"], "it is 'local,size'"),
        (["--cache-config=local,size=1k"], "setting 'size' of cache local must be a whole number of bytes; it is '1k'"),
        (["--cache-config=local,size=-1"], "must be a whole number of bytes; it is '-1'"),
        (["--cache-config=local,colour=1"], "cache local has no setting 'colour', only size"),
        (["--cache-config=disk,size=1"], "there is no cache 'disk', only local"),
        (
            ["--cache-config=local,size=1", "--cache-config=redis,host=a"],
            "there can be one cache only, these are 2: local, redis",
        ),
        (
            ["--cache-config=local,size=1", "--response-cache-byte-size=1"],
            "--response-cache-byte-size is the older form of --cache-config: give one of them",
        ),
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
