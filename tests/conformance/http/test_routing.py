"""Which paths and methods exist, and what every error looks like."""

from __future__ import annotations

import pytest

GETS = [
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    "/v2/logging",
    *(f"/v2/models/versions{version}{end}" for version in ("", "/versions/3") for end in ("", "/ready", "/config", "/stats")),
]
POSTS = [
    *(f"/v2/models/echo{version}/{end}" for version in ("", "/versions/1") for end in ("infer", "generate", "generate_stream")),
    "/v2/repository/index",
    "/v2/repository/any/index",
    "/v2/repository/models/echo/load",
    "/v2/repository/models/echo/unload",
]
UNKNOWN = [
    "/",
    "/v1",
    "/v2/",
    "/v2/health",
    "/v2/health/",
    "/v2/health/live/",
    "/v2/models",
    "/v2/models/",
    "/v2/models/echo/",
    "/v2/models/echo/infer/",
    "/v2/models/echo/versions",
    "/v2/models/echo/versions/one",
    "/v2/models/echo/versions/-1",
    "/v2/models/echo/versions/1/",
    "/v2/models/echo/versions/1/trace/setting",
    "/v2/models/a/b/infer",
    "/v2/repository",
    "/v2/repository/index/",
    "/V2",
    "/v2/models/echo/Infer",
    "//v2",
    "/v2/logging/",
    "/metrics",
]


@pytest.mark.parametrize("path", GETS)
def test_a_get_path_answers_get_and_refuses_post_with_405(ask, error, path):
    assert ask("GET", path).status_code == 200
    if path != "/v2/logging":
        assert error(ask("POST", path, data=b"{}"), 405) == "Method Not Allowed"


@pytest.mark.parametrize("path", POSTS)
def test_a_post_path_refuses_get_with_405(ask, error, path):
    response = ask("GET", path)
    assert error(response, 405) == "Method Not Allowed"
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", UNKNOWN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_other_path_is_404_since_paths_match_as_a_whole(ask, error, method, path):
    assert error(ask(method, path, data=b""), 404) == "Not Found"


@pytest.mark.parametrize("path", ["/v2?x=1", "/v2/health/live?", "/v2/models/echo?a=b&c=/infer"])
def test_the_query_string_is_ignored(ask, path):
    assert ask("GET", path).status_code == 200


def test_the_query_string_of_an_inference_is_ignored(ask):
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    assert ask("POST", "/v2/models/echo/infer?trace=1", body).status_code == 200


def test_percent_encoded_names_are_decoded(ask):
    assert ask("GET", "/v2/models/%65cho").json()["name"] == "echo"
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    assert ask("POST", "/v2/models/%65cho/infer", body).json()["model_name"] == "echo"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v2", "/v2/models/echo/infer", "/v2/repository/index"])
def test_other_methods_of_a_known_path_are_405(ask, error, method, path):
    assert error(ask(method, path), 405) == "Method Not Allowed"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
def test_other_methods_of_an_unknown_path_are_404(ask, error, method):
    assert error(ask(method, "/nowhere"), 404) == "Not Found"


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2", "/v2/models/echo/config", "/nowhere"])
def test_head_answers_as_get_without_the_body(ask, path):
    got, head = ask("GET", path), ask("HEAD", path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


LOOKUPS = [("GET", end) for end in ("", "/ready", "/config")] + [
    ("POST", f"/{end}") for end in ("infer", "generate", "generate_stream")
]


@pytest.mark.parametrize(("method", "end"), LOOKUPS)
def test_a_model_that_is_unknown_is_404_and_named(ask, error, method, end):
    text = error(ask(method, f"/v2/models/nobody{end}", data=b'{"inputs": []}'), 404)
    assert text == "Request for unknown model: 'nobody' is not found"


@pytest.mark.parametrize(("method", "end"), LOOKUPS)
@pytest.mark.parametrize("version", ["2", "99999999999", "9" * 40])
def test_a_version_that_is_unknown_is_404_and_named(ask, error, method, end, version):
    text = error(ask(method, f"/v2/models/versions/versions/{version}{end}", data=b'{"inputs": []}'), 404)
    assert text.startswith(f"Request for unknown model: 'versions' version {version[:11]}")
    assert text.endswith("is not found")


def test_the_version_in_the_path_is_a_number_and_may_have_leading_zeros(ask):
    assert ask("GET", "/v2/models/versions/versions/0003").json()["versions"] == ["3"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/models/echo/trace/setting"),
    ],
)
def test_what_is_not_built_is_501_and_says_so(ask, error, method, path):
    assert "built yet" in error(ask(method, path, data=b"{}"), 501)
