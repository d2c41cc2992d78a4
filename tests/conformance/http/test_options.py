"""What options change over HTTP: restricted APIs, forwarded headers, readiness with failed models."""

from __future__ import annotations

import json

import pytest
import requests
import tritonclient.http as triton
from http_models import write_identity
from model_folders import write_model
from tritonclient.utils import InferenceServerException

X = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}
KEY = {"admin-key": "s3cret"}
REFUSAL = "This API is restricted, expecting header 'admin-key'"
RESTRICTED = [
    ("POST", "/v2/models/echo/infer"),
    ("POST", "/v2/models/echo/versions/1/infer"),
    ("POST", "/v2/models/echo/generate"),
    ("POST", "/v2/models/echo/generate_stream"),
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/echo/load"),
    ("GET", "/v2/models/echo/config"),
    ("GET", "/v2/logging"),
]
OPEN = ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/echo", "/v2/models/echo/ready", "/v2/models/echo/stats"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, serve_for_module):
    """A server with restricted APIs and forwarded headers, one of whose models failed to load."""
    repository = tmp_path_factory.mktemp("guarded")
    write_identity(repository, "echo")
    write_model(repository, "broken", 'backend: "no_such_backend"')
    return serve_for_module(
        repository,
        "--exit-on-error=false",
        "--http-restricted-api=inference,model-repository,model-config,logging:admin-key=s3cret",
        "--http-header-forward-pattern=^(x-mine-.*|priority|triton_.*)$",
    )


@pytest.fixture
def call(guarded):
    def send(method, path, headers=None, document=None):
        body = None if document is None else json.dumps(document)
        return requests.request(method, guarded.url + path, data=body, headers=headers, timeout=10)

    return send


@pytest.mark.parametrize(("method", "path"), RESTRICTED)
@pytest.mark.parametrize(
    "headers", [{}, {"admin-key": "S3CRET"}, {"admin-key": ""}, {"admin": "s3cret"}, {"admin-key": "s3cret,"}]
)
def test_a_restricted_api_is_403_without_its_header_and_value(call, error, method, path, headers):
    assert error(call(method, path, headers, {"inputs": [X]}), 403) == REFUSAL


@pytest.mark.parametrize(("method", "path"), RESTRICTED)
def test_the_method_is_looked_at_after_the_key(call, error, method, path):
    other = "GET" if method == "POST" else "POST"
    if path == "/v2/logging":
        other = "PUT"
    assert error(call(other, path), 403) == REFUSAL
    assert call(other, path, KEY).status_code == 405


@pytest.mark.parametrize("name", ["admin-key", "ADMIN-KEY", "Admin-Key"])
def test_the_name_of_the_key_is_compared_without_case(call, name):
    assert call("POST", "/v2/models/echo/infer", {name: "s3cret"}, {"inputs": [X]}).status_code == 200
    assert call("GET", "/v2/models/echo/config", {name: "s3cret"}).status_code == 200


@pytest.mark.parametrize("path", OPEN)
def test_other_apis_stay_open(call, path):
    response = call("GET", path)
    assert response.status_code == (200 if path != "/v2/health/ready" else 400)


def test_tritonclient_passes_the_key(guarded):
    with triton.InferenceServerClient(guarded.http) as client:
        assert client.get_model_config("echo", headers=KEY)["name"] == "echo"
        with pytest.raises(InferenceServerException, match="restricted"):
            client.get_model_config("echo")


# --- readiness


def test_a_model_that_failed_makes_the_server_not_ready_and_live(call):
    assert call("GET", "/v2/health/live").status_code == 200
    ready = call("GET", "/v2/health/ready")
    assert (ready.status_code, ready.content) == (400, b"")


def test_the_index_tells_why_a_model_is_not_there(call):
    index = call("POST", "/v2/repository/index", KEY).json()
    (broken,) = [entry for entry in index if entry["name"] == "broken"]
    assert broken["state"] == "UNAVAILABLE"
    assert "no_such_backend" in broken["reason"]
    ready = call("POST", "/v2/repository/index", KEY, {"ready": True}).json()
    assert [entry["name"] for entry in ready] == ["echo"]


def test_a_model_that_failed_is_not_ready_for_tritonclient(guarded):
    with triton.InferenceServerClient(guarded.http) as client:
        assert client.is_model_ready("echo")
        assert not client.is_model_ready("broken")


@pytest.mark.parametrize("end", ["infer", "generate"])
def test_an_inference_of_a_model_that_failed_says_so(call, end):
    response = call("POST", f"/v2/models/broken/{end}", KEY, {"inputs": []})
    assert response.status_code in (400, 404, 503)
    assert "broken" in response.json()["error"]


# --- forwarded headers


def test_a_header_that_matches_is_no_hindrance(call):
    response = call("POST", "/v2/models/echo/infer", {**KEY, "X-Mine-User": "u", "X-Mine-Empty": ""}, {"inputs": [X]})
    assert response.status_code == 200


@pytest.mark.parametrize("name", ["priority", "PRIORITY", "triton_x"])
def test_a_reserved_name_can_not_be_forwarded(call, error, name):
    text = error(call("POST", "/v2/models/echo/infer", {**KEY, name: "1"}, {"inputs": [X]}))
    assert text == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."


def test_headers_are_not_forwarded_to_generate(call):
    response = call("POST", "/v2/models/echo/generate", {**KEY, "priority": "1"}, {"X": 1.5})
    assert response.json()["Y"] == 1.5


def test_a_reserved_name_that_does_not_match_the_pattern_is_only_a_header(call):
    assert call("POST", "/v2/models/echo/infer", {**KEY, "timeout": "1"}, {"inputs": [X]}).status_code == 200
