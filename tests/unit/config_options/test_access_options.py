"""Options of API keys: what a key may be, where it comes from, and that no text shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.cli.flag_help import flag_help
from naiad.config.options import ApiKey, ServerOptions, parse_options
from naiad.config.options.keywords import options_from_keywords
from naiad.errors import InferenceServerError

KEY, OTHER = "first-key-0123456789", "other-key-0123456789"


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch) -> None:
    monkeypatch.delenv("NAIAD_API_KEY", raising=False)


def parsed(*argv: str) -> ServerOptions:
    return parse_options(["/", *argv])


def refusal(*argv: str) -> str:
    with pytest.raises(InferenceServerError) as caught:
        parsed(*argv)
    return caught.value.message


def test_without_keys_none_is_asked_for():
    assert (parsed().has_api_keys, parsed().notes) == (False, ())


def test_keys_add_up_and_only_their_digests_are_kept():
    options = parsed(f"--api-key={KEY}", "--api-key", OTHER)
    assert options.api_key == (ApiKey.of(KEY), ApiKey.of(OTHER))
    assert options.has_api_keys
    assert KEY not in repr(options)


def test_a_key_on_the_command_line_brings_a_note_that_a_file_is_better():
    (note,) = parsed(f"--api-key={KEY}").notes
    assert "--api-key-file" in note
    assert KEY not in note


@pytest.mark.parametrize(
    "key", ["k" * 15, "k" * 513, "has a space in it 0", "tab\tinside-012345", "not-ascii-é-0123", "line\nend-01234567"]
)
def test_what_can_be_no_key_is_refused_without_being_shown(key):
    message = refusal(f"--api-key={key}")
    assert "must be 16 to 512 characters of visible ASCII" in message
    assert key not in message


@pytest.mark.parametrize("key", ["k" * 16, "k" * 512, "#0123456789abcdef", "~!=,:;/0123456789"])
def test_the_limits_belong_to_what_is_allowed(key):
    assert parsed(f"--api-key={key}").api_key == (ApiKey.of(key),)


def test_a_program_that_gives_a_wrong_key_is_told_without_it():
    assert options_from_keywords({"api_key": KEY}).api_key == (ApiKey.of(KEY),)
    with pytest.raises(InferenceServerError) as caught:
        options_from_keywords({"api_key": "too-short"})
    assert caught.value.message.startswith("api_key must be 16 to 512")
    assert "too-short" not in caught.value.message


def test_the_environment_gives_keys_when_the_command_line_does_not(monkeypatch):
    monkeypatch.setenv("NAIAD_API_KEY", f" {KEY}  {OTHER}\n")
    options = parsed()
    assert (options.api_key, options.notes) == ((ApiKey.of(KEY), ApiKey.of(OTHER)), ())
    assert parsed(f"--api-key={OTHER}").api_key == (ApiKey.of(OTHER),)
    assert KEY not in flag_help("", "")


@pytest.mark.parametrize("value", ["", "  ", "short"])
def test_a_variable_that_holds_no_key_is_refused_and_does_not_leave_the_server_open(monkeypatch, value):
    monkeypatch.setenv("NAIAD_API_KEY", value)
    assert "NAIAD_API_KEY in the environment" in refusal()


def test_a_file_is_named_and_not_read_yet():
    options = parsed("--api-key-file=/nowhere/keys")
    assert (options.api_key_file, options.has_api_keys) == (Path("/nowhere/keys"), True)


def test_open_groups_are_health_and_metrics_or_those_that_are_named():
    key = f"--api-key={KEY}"
    assert parsed(key).api_key_open == ("health", "metrics")
    assert parsed(key, "--api-key-open=docs, metadata").api_key_open == ("docs", "metadata")
    assert parsed(key, "--api-key-open=").api_key_open == ()
    for wrong in ("nothing", "health,", "Health"):
        assert f"metrics, docs, reflection; it is '{wrong}'" in refusal(key, f"--api-key-open={wrong}")


def test_open_groups_without_a_key_are_refused():
    assert "there are none" in refusal("--api-key-open=metadata")


def test_the_header_of_the_key_can_be_no_restricted_apis_header():
    restricted = "--http-restricted-api=inference:AUTHORIZATION=secret"
    assert parsed(restricted).http_restricted_api
    assert "use another header's name" in refusal(f"--api-key={KEY}", restricted)
    assert parsed(f"--api-key={KEY}", "--grpc-restricted-protocol=inference:authorization=secret").grpc_restricted_protocol
