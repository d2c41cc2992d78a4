"""Rules of paths and methods: what is found, what isn't, and that nothing in a path is a fault of the server."""

from __future__ import annotations

import asgi
import pytest
from fake_service import FakeService
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.options import RestrictedGroup
from naiad.frontends.http.admin import table
from naiad.frontends.http.admin.paths import variants
from naiad.frontends.http.app import create_app
from naiad.frontends.http.options import HttpOptions

# Every path of the protocol with its methods, written out once more by hand.
MODEL = ("/v2/models/m", "/v2/models/m/versions/1")
REPOSITORY = ("/v2/repository", "/v2/repository/r")
KINDS = ("/v2/systemsharedmemory", "/v2/cudasharedmemory")
EXPECTED = {
    **{path: {"GET"} for path in ("/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/stats", "/docs", "/openapi.json")},
    **{f"{model}{end}": {"GET"} for model in MODEL for end in ("", "/ready", "/config", "/stats")},
    **{f"{model}/{end}": {"POST"} for model in MODEL for end in ("infer", "generate", "generate_stream")},
    "/v2/models/m/trace/setting": {"GET", "POST"},
    "/v2/models/m/traffic": {"GET", "POST", "DELETE"},
    "/v2/trace/setting": {"GET", "POST"},
    "/v2/logging": {"GET", "POST"},
    **{f"{prefix}/index": {"POST"} for prefix in REPOSITORY},
    **{f"{prefix}/models/m/{end}": {"POST"} for prefix in REPOSITORY for end in ("load", "unload")},
    **{f"{kind}{region}/status": {"GET"} for kind in KINDS for region in ("", "/region/r")},
    **{f"{kind}/region/r/register": {"POST"} for kind in KINDS},
    **{f"{kind}{region}/unregister": {"POST"} for kind in KINDS for region in ("", "/region/r")},
}


def allowed(methods: set[str]) -> str:
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


@pytest.mark.parametrize("path", EXPECTED)
def test_a_known_path_with_another_method_is_405_that_names_the_allowed_ones(call, path):
    for method in {"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"} - EXPECTED[path]:
        reply = call(method, path)
        assert (reply.status, reply.json) == (405, {"error": "Method Not Allowed"})
        assert reply.headers["allow"] == allowed(EXPECTED[path])
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", EXPECTED)
def test_every_path_of_the_protocol_is_known_with_its_methods(call, path):
    for method in EXPECTED[path]:
        reply = call(method, path, b"{}" if method == "POST" else b"")
        assert reply.status not in (405, 500)
        assert reply.body != b'{"error":"Not Found"}'


def test_the_table_has_nothing_beyond_the_protocol():
    concrete = {
        path.format(model="m", version="1", repository="r", region="r")
        for endpoint in table.endpoints()
        for path in variants(endpoint.path)
    }
    assert concrete | {"/docs", "/openapi.json"} == set(EXPECTED)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "*",
        "/v2/",
        "//v2",
        "/V2",
        "/v2/health",
        "/v2/health/live/",
        "/v2/health/live%2f",
        "/v2/models",
        "/v2/models/",
        "/v2/models//ready",
        "/v2/models/echo/",
        "/v2/models/echo/versions/1/",
        "/v2/models/echo/versions/",
        "/v2/models/echo/versions/-1",
        "/v2/models/echo/versions/1.5",
        "/v2/models/echo/versions/one/config",
        "/v2/models/echo/versions/\u00b2",
        "/v2/models/echo/versions/%31",
        "/v2/models/echo/versions/1/trace/setting",
        "/v2/models/a/b/config",
        "/v2/models/echo/../echo",
        "/v2/%6dodels/echo",
        "/v2/repository/r/s/index",
        "/metrics",
        "/docs/",
        "/static/docs.js",
        "/v2\n",
        "/v2/models/echo\n/x",
    ],
)
def test_any_other_path_is_404(call, path):
    for method in ("GET", "POST"):
        reply = call(method, path)
        assert (reply.status, reply.json) == (404, {"error": "Not Found"})


def test_the_query_is_ignored(call):
    assert call("GET", "/v2?x=/v2/nothing&y").status == 200


def test_head_is_a_get(call):
    for path in ("/v2/health/live", "/v2", "/v2/models/echo/config", "/docs"):
        assert call("HEAD", path).status == 200


def test_a_percent_encoded_name_is_decoded_once(call, service):
    assert call("GET", "/v2/models/%C3%BC%20b").json["name"] == "ü b"
    assert call("GET", "/v2/models/%2565cho").error == "Request for unknown model: '%65cho' is not found"


def test_an_encoded_stats_is_a_models_name_and_the_plain_one_never(call, service):
    assert call("GET", "/v2/models/%73tats").status == 404
    assert call("GET", "/v2/models/stats").json["model_stats"]
    assert service.asked == [("stats", ""), ("", "")]


@pytest.mark.parametrize(
    "name", ["..", ".", "%2e", "%2e%2E", "a%2Fb", "%2f", "%00", "echo%00", "a%0ab", "%7f", "%ff", "%c3", "%ed%a0%80"]
)
def test_a_name_that_nothing_can_have_is_400_and_reaches_nobody(call, service, name):
    for end in ("", "/ready", "/config", "/stats", "/versions/1/ready"):
        assert "name" in call("GET", f"/v2/models/{name}{end}").error
    for end in ("load", "unload"):
        assert call("POST", f"/v2/repository/models/{name}/{end}").status == 400
    assert (service.asked, service.loaded, service.unloaded) == ([], [], [])


def test_a_version_is_its_number(call, service):
    assert call("GET", "/v2/models/echo/versions/007").json["versions"] == ["7"]


def test_a_version_with_more_digits_than_any_has_is_not_found(call, service):
    reply = call("GET", f"/v2/models/echo/versions/{'9' * 6000}")
    assert reply.status == 404
    assert reply.error.startswith("Request for unknown model: 'echo' version 999")
    assert len(reply.error) < 200
    assert service.asked == []


def test_inference_by_a_target_that_the_connection_does_not_know_is_told_what_to_send(call):
    for end in ("infer", "generate", "generate_stream"):
        reply = call("POST", f"/v2/models/echo/{end}", b"{}")
        assert reply.status == 501
        assert "request target" in reply.error


@pytest.mark.parametrize("path", ["/v2/trace/setting", "/v2/models/echo/trace/setting"])
def test_what_is_not_built_says_so(call, path):
    reply = call("GET", path)
    assert (reply.status, reply.headers["content-type"]) == (501, "application/json")
    assert "built yet" in reply.error


# --- restricted APIs


def restricted(*apis: str):
    app = create_app(FakeService(), HttpOptions(restricted=(RestrictedGroup(frozenset(apis), "Key", "v"),)))
    return lambda method, path, headers=None: asgi.call(app, method, path, b"{}" if method == "POST" else b"", headers)


@pytest.mark.parametrize(
    ("api", "method", "path"),
    [
        ("health", "GET", "/v2/health/live"),
        ("health", "GET", "/v2/health/ready"),
        ("health", "GET", "/v2/models/echo/ready"),
        ("metadata", "GET", "/v2"),
        ("metadata", "GET", "/v2/models/echo"),
        ("metadata", "GET", "/openapi.json"),
        ("model-config", "GET", "/v2/models/echo/config"),
        ("statistics", "GET", "/v2/models/stats"),
        ("statistics", "GET", "/v2/models/echo/stats"),
        ("trace", "GET", "/v2/trace/setting"),
        ("trace", "POST", "/v2/models/echo/trace/setting"),
        ("logging", "GET", "/v2/logging"),
        ("logging", "POST", "/v2/logging"),
        ("model-repository", "POST", "/v2/repository/index"),
        ("model-repository", "POST", "/v2/repository/models/echo/load"),
        ("model-repository", "POST", "/v2/repository/r/models/echo/unload"),
        ("shared-memory", "GET", "/v2/systemsharedmemory/status"),
        ("shared-memory", "POST", "/v2/cudasharedmemory/region/r/register"),
        ("inference", "POST", "/v2/models/echo/infer"),
        ("inference", "POST", "/v2/models/echo/generate_stream"),
    ],
)
def test_a_restricted_endpoint_is_403_before_its_method_is_looked_at(api, method, path):
    call = restricted(api)
    for each in (method, "PUT"):
        reply = call(each, path)
        assert (reply.status, reply.error) == (403, "This API is restricted, expecting header 'Key'")
    assert call(method, path, {"KEY": "v"}).status not in (403, 405)
    assert call("PUT", path, {"key": "v"}).status == 405


def test_an_endpoint_of_another_api_stays_open():
    assert restricted("model-repository")("GET", "/v2").status == 200


# --- robustness

_PARTS = st.sampled_from(["v2", "models", "echo", "versions", "1", "stats", "ready", "..", "%00", "%2e", "infer", "", "load"])
_PATHS = st.one_of(
    st.lists(_PARTS, max_size=7).map(lambda parts: "/" + "/".join(parts)),
    st.text(st.characters(max_codepoint=255), max_size=40).map(lambda text: "/v2/models/" + text.replace("?", "")),
)


@given(_PATHS, st.sampled_from(["GET", "POST", "HEAD", "DELETE"]))
def test_no_path_is_a_fault_of_the_server(path, method):
    reply = asgi.call(create_app(FakeService(), HttpOptions()), method, path)
    assert reply.status in (200, 400, 404, 405, 501)
