"""Rules of calls from web pages."""

from __future__ import annotations

import pytest

from naiad.frontends.http.cors import CorsPolicy

EXPOSED = "Inference-Header-Content-Length, Retry-After, grpc-status, grpc-message, grpc-encoding, grpc-accept-encoding"
APP = "https://app.example"
POLICY = CorsPolicy((APP, "http://localhost:3000"))
ANY = CorsPolicy(("*",))


def preflight(
    origin: str, headers: bytes | None = b"content-type,inference-header-content-length"
) -> list[tuple[bytes, bytes]]:
    wanted = [] if headers is None else [(b"access-control-request-headers", headers)]
    return [(b"origin", origin.encode()), (b"access-control-request-method", b"POST"), *wanted]


def fields(lines: bytes | None) -> dict[str, str]:
    assert lines is not None
    assert lines == b"" or lines.endswith(b"\r\n")
    return dict(line.split(": ", 1) for line in lines.decode().split("\r\n") if line)


def test_without_origins_there_are_no_headers_and_no_preflight():
    policy = CorsPolicy(())
    assert not policy.is_enabled
    assert policy.headers_for([(b"origin", APP.encode())]) == b""
    assert policy.preflight(preflight(APP)) is None


def test_an_allowed_origin_is_named_and_may_read_the_length_header():
    for origin in (APP, "http://localhost:3000"):
        assert fields(POLICY.headers_for([(b"host", b"h"), (b"origin", origin.encode())])) == {
            "Access-Control-Allow-Origin": origin,
            "Vary": "Origin",
            "Access-Control-Expose-Headers": EXPOSED,
        }


@pytest.mark.parametrize(
    "origin", [b"https://evil.example", b"https://app.example.evil", b"null", b"", b"HTTPS://APP.EXAMPLE", b"*"]
)
def test_another_origin_gets_no_permission_but_caches_are_told(origin):
    assert POLICY.headers_for([(b"origin", origin)]) == b"Vary: Origin\r\n"


def test_a_response_without_origin_may_not_be_cached_for_one_with():
    assert POLICY.headers_for([]) == b"Vary: Origin\r\n"


def test_star_allows_every_origin_and_never_credentials():
    for lines in (ANY.headers_for([(b"origin", b"https://x")]), ANY.preflight(preflight("https://x"))):
        assert fields(lines)["Access-Control-Allow-Origin"] == "*"
        assert b"credentials" not in lines.lower()


def test_star_beside_an_origin_is_star():
    policy = CorsPolicy((APP, "*"))
    assert fields(policy.headers_for([(b"origin", APP.encode())]))["Access-Control-Allow-Origin"] == "*"


def test_a_preflight_allows_the_methods_and_the_headers_that_were_asked_for():
    answer = fields(POLICY.preflight(preflight(APP)))
    assert answer["Access-Control-Allow-Origin"] == APP
    assert answer["Vary"] == "Origin"
    assert "POST" in answer["Access-Control-Allow-Methods"]
    assert answer["Access-Control-Allow-Headers"] == "content-type,inference-header-content-length"


def test_a_preflight_without_wanted_headers_names_none():
    assert "Access-Control-Allow-Headers" not in fields(POLICY.preflight(preflight(APP, None)))


@pytest.mark.parametrize("wanted", [b"a\r\nX: y", b"a;b", b"\xff", b"a" * 5000])
def test_what_is_no_list_of_header_names_is_not_sent_back(wanted):
    assert "Access-Control-Allow-Headers" not in fields(POLICY.preflight(preflight(APP, wanted)))


def test_a_preflight_of_another_origin_is_answered_without_permission():
    assert POLICY.preflight(preflight("https://evil.example")) == b"Vary: Origin\r\n"


def test_options_without_the_headers_of_a_preflight_is_none():
    assert POLICY.preflight([(b"origin", APP.encode())]) is None
    assert POLICY.preflight([(b"access-control-request-method", b"POST")]) is None
