"""From a command line to server options."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.config.options import MetricsConfig, RestrictedGroup, ServerOptions, parse_options
from naiad.errors import Code, InferenceServerError


@pytest.fixture
def repository(tmp_path: Path) -> str:
    return str(tmp_path)


def refusal(*argv: str) -> str:
    with pytest.raises(InferenceServerError) as caught:
        parse_options(argv)
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


def test_a_repository_alone_leaves_every_other_option_at_its_default(repository: str) -> None:
    assert ServerOptions(model_repository=(Path(repository),)) == parse_options([repository])


@pytest.mark.parametrize("spelling", [["--http-port=9000"], ["--http-port", "9000"], ["--http-port=1", "--http-port", "9000"]])
def test_a_value_follows_an_equals_sign_or_a_space_and_the_last_one_wins(repository: str, spelling: list[str]) -> None:
    assert parse_options([repository, *spelling]).http_port == 9000


@pytest.mark.parametrize("spelling", [["--allow-metrics=false"], ["--allow-metrics", "OFF"], ["--allow-metrics", "0"]])
def test_a_bool_flag_takes_a_value(repository: str, spelling: list[str]) -> None:
    assert parse_options([*spelling, repository]).allow_metrics is False


def test_a_bool_flag_without_a_value_is_an_error(repository: str) -> None:
    assert "'--strict-readiness' requires an argument" in refusal(repository, "--strict-readiness")


def test_disable_auto_complete_config_takes_no_value(repository: str) -> None:
    assert parse_options([repository, "--disable-auto-complete-config"]).disable_auto_complete_config is True
    assert "does not take a value" in refusal(repository, "--disable-auto-complete-config=true")


def test_repositories_add_up_from_both_flags_and_from_bare_paths_each_once(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    options = parse_options([str(c), f"--model-repository={a}", "--model-store", str(b), f"--model-repository={a}"])
    assert (a, b, c) == options.model_repository


def test_repeatable_flags_add_up(repository: str) -> None:
    options = parse_options(
        [
            repository,
            "--http-restricted-api=health:key=1",
            "--http-restricted-api=logging,trace:key=2",
            "--http-cors-origin=https://a.example",
            "--http-cors-origin=https://b.example",
            "--backend-config=onnxruntime,x=1",
            "--backend-config=y=2",
            "--metrics-config=counter_latencies=false",
        ]
    )
    assert (
        RestrictedGroup(frozenset({"health"}), "key", "1"),
        RestrictedGroup(frozenset({"logging", "trace"}), "key", "2"),
    ) == options.http_restricted_api
    assert options.http_cors_origin == ("https://a.example", "https://b.example")
    assert {name: dict(keys) for name, keys in options.backend_config.items()} == {"onnxruntime": {"x": "1"}, "": {"y": "2"}}
    assert MetricsConfig(counter_latencies=False) == options.metrics_config


@pytest.mark.parametrize(
    ("argv", "address"),
    [
        ([], "127.0.0.1"),
        (["--http-address=0.0.0.0"], "0.0.0.0"),
        (["--http-address=0.0.0.0", "--metrics-address=::1"], "::1"),
        (["--http-address=0.0.0.0", "--metrics-address="], "0.0.0.0"),
    ],
)
def test_metrics_are_served_on_the_http_address_unless_told_otherwise(repository: str, argv: list[str], address: str) -> None:
    assert address == parse_options([repository, *argv]).metrics_address


def test_without_a_repository_nothing_starts() -> None:
    assert refusal().startswith("--model-repository must be specified")


def test_a_bad_value_is_named_with_its_flag_and_what_is_allowed(repository: str) -> None:
    assert refusal(repository, "--http-port=70000") == "--http-port must be a whole number from 0 to 65535; it is '70000'"
    assert "it is '://models'" in refusal("://models")


def test_an_unknown_flag_gets_the_nearest_one(repository: str) -> None:
    assert refusal(repository, "--http-prt=1") == "there is no flag --http-prt; did you mean --http-port?"
    assert refusal(repository, "--zzz") == "there is no flag --zzz; `naiad serve --help` lists all"


def test_two_services_on_one_address_and_port_are_refused_but_not_on_free_ports(repository: str) -> None:
    expected = "The server cannot listen to HTTP requests and metrics requests at the same address and port 127.0.0.1:8002"
    assert expected == refusal(repository, "--http-port=8002")
    expected = "The server cannot listen to HTTP requests and GRPC requests at the same address and port 127.0.0.1:8000"
    expected += "; --one-port serves HTTP and gRPC on one"
    assert expected == refusal(repository, "--grpc-port=8000")
    assert parse_options([repository, "--http-port=8002", "--allow-metrics=false"]).http_port == 8002
    assert parse_options([repository, "--http-port=8002", "--metrics-address=127.0.0.2"]).http_port == 8002
    assert parse_options([repository, "--http-port=0", "--metrics-port=0"]).metrics_port == 0


def test_a_server_that_serves_nothing_is_refused(repository: str) -> None:
    assert "leave nothing to serve" in refusal(repository, "--allow-http=off", "--allow-grpc=off", "--allow-metrics=off")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--vertex-ai-port=1",
            "--vertex-ai-port: the Vertex AI endpoints aren't built yet",
        ),
        ("--grpc-infer-thread-count=1", "--grpc-infer-thread-count=1: it must be a whole number from 2 to 128"),
        ("--cache-directory=/caches", "--cache-directory: native caches aren't loaded; --cache-config says which are built in"),
        ("--strict-model-config=true", "--strict-model-config=true: use --disable-auto-complete-config"),
    ],
)
def test_a_flag_whose_part_is_not_built_says_so(repository: str, argument: str, message: str) -> None:
    assert message == refusal(repository, argument)


def test_one_bad_value_of_a_refused_flag_is_enough(repository: str) -> None:
    assert "--allow-vertex-ai=true" in refusal(repository, "--allow-vertex-ai=true", "--allow-vertex-ai=false")


@pytest.mark.parametrize(
    "argument",
    [
        "--allow-vertex-ai=FALSE",
        "--model-control-mode=NONE",
        "--rate-limit=off",
        "--model-load-retry-count=0",
    ],
)
def test_a_value_that_asks_for_nothing_missing_is_accepted_without_a_word(repository: str, argument: str) -> None:
    assert parse_options([repository]) == parse_options([repository, argument])


def test_an_accepted_value_without_effect_is_told_to_the_operator(repository: str) -> None:
    notes = parse_options([repository, "--http-thread-count=8"]).notes
    assert notes == ("--http-thread-count=8: HTTP runs on one event loop, so the number isn't used",)
    assert "--http-thread-count=0" in refusal(repository, "--http-thread-count=0")


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        (["--grpc-server-cert=a.pem"], ["--grpc-server-cert: gRPC has no TLS of its own without --grpc-use-ssl=true"]),
        (["--grpc-use-ssl=true", "--grpc-server-key=a.pem"], []),
        (["--grpc-use-ssl=true", "--grpc-root-cert=a.pem"], ["--grpc-root-cert: clients are asked for no certificate"]),
        (["--grpc-use-ssl-mutual=true", "--grpc-root-cert=a.pem"], []),
        (["--tls-min-version=1.3"], ["--tls-min-version: there is no TLS without a certificate"]),
        (["--tls-min-version=1.3", "--tls-cert=a.pem"], []),
        (["--one-port=true", "--grpc-port=8001"], ["--grpc-port: gRPC listens where HTTP does, by --one-port"]),
        (["--grpc-port=8001"], []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_flag_that_changes_nothing_beside_the_others_says_so(repository: str, arguments: list[str], notes: list[str]) -> None:
    found = parse_options([repository, *arguments]).notes
    assert [note for note, wanted in zip(found, notes, strict=True) if not note.startswith(wanted)] == []
