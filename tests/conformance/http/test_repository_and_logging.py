"""The model repository extension and the logging extension."""

from __future__ import annotations

import json

import pytest
from raw_http import Connection, post
from tritonclient.utils import InferenceServerException


def test_the_index_has_every_known_version_with_its_state(client):
    index = client.get_model_repository_index()
    assert {"name": "echo", "version": "1", "state": "READY"} in index
    assert [entry["version"] for entry in index if entry["name"] == "versions" and entry["state"] == "READY"] == ["3", "12"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": false}', b'{"ready": true}', b'{"other": 1}'])
@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/repository/any/index"])
def test_the_index_takes_an_optional_body_and_ignores_the_repository(ask, path, body):
    response = ask("POST", path, data=body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert "echo" in [entry["name"] for entry in response.json()]


@pytest.mark.parametrize("body", [b'{"ready": 1}', b'{"ready": "true"}', b'{"ready": null}', b"[]", b"{", b"\xff"])
def test_a_wrong_index_body_is_refused(ask, error, body):
    assert error(ask("POST", "/v2/repository/index", data=body))


@pytest.mark.parametrize("end", ["load", "unload"])
def test_load_and_unload_are_503_unless_the_mode_is_explicit(ask, error, end):
    text = error(ask("POST", f"/v2/repository/models/echo/{end}", data=b""), 503)
    assert text == "explicit model load / unload is not allowed if polling is enabled"


def test_tritonclient_is_told_that_it_may_not_load(client):
    with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed"):
        client.load_model("echo")


@pytest.mark.parametrize("end", ["load", "unload"])
def test_a_repository_in_the_path_of_load_is_501(ask, error, end):
    assert "'other'" in error(ask("POST", f"/v2/repository/other/models/echo/{end}", data=b""), 501)


@pytest.mark.parametrize(
    ("end", "document", "words"),
    [
        ("load", {"parameters": []}, "'parameters' must be an object"),
        ("load", {"parameters": {"other": "x"}}, "unknown load parameter 'other'"),
        ("load", {"parameters": {"config": 1}}, "load parameter 'config' must be a string"),
        ("load", {"parameters": {"file:1/model.onnx": "%%"}}, "load parameter 'file:1/model.onnx' isn't valid base64"),
        ("unload", {"parameters": {"unload_dependents": "yes"}}, "'unload_dependents' must be true or false"),
        ("load", [1], "must be an object"),
        ("unload", "x", "must be an object"),
    ],
)
def test_wrong_bodies_of_load_and_unload_are_refused(ask, error, end, document, words):
    assert words in error(ask("POST", f"/v2/repository/models/echo/{end}", document))


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "a%2Fb", "%00"])
@pytest.mark.parametrize("end", ["load", "unload"])
def test_names_that_nothing_can_have_are_refused(raw_post, name, end):
    status, body = raw_post(f"/v2/repository/models/{name}/{end}")
    assert status in (400, 404)
    assert list(json.loads(body)) == ["error"]


@pytest.fixture
def raw_post(server):
    """Post without a client library: those tidy paths up before they send them."""

    def send(path):
        with Connection(server.host_port) as connection:
            status, _, body = connection.send(post(path, b"")).response()
            return status, body

    return send


# --- logging


@pytest.fixture
def _settings_restored(ask):
    before = ask("GET", "/v2/logging").json()
    yield
    before.pop("log_file")
    assert ask("POST", "/v2/logging", before).status_code == 200


def test_log_settings_have_their_members_and_types(client):
    settings = client.get_log_settings()
    assert {name: type(value) for name, value in settings.items()} == {
        "log_file": str,
        "log_info": bool,
        "log_warning": bool,
        "log_error": bool,
        "log_verbose_level": int,
        "log_format": str,
    }


@pytest.mark.usefixtures("_settings_restored")
@pytest.mark.parametrize(
    ("name", "value"),
    [("log_info", False), ("log_warning", False), ("log_error", False), ("log_verbose_level", 1), ("log_format", "ISO8601")],
)
def test_a_setting_changes_and_all_are_answered(client, name, value):
    before = client.get_log_settings()
    after = client.update_log_settings({name: value})
    assert after == {**before, name: value}
    assert client.get_log_settings() == after


@pytest.mark.parametrize("document", [{}, {"log_info": None}, {"log_verbose_level": None, "log_file": None}])
def test_nulls_and_an_empty_object_change_nothing(ask, document):
    before = ask("GET", "/v2/logging").json()
    assert ask("POST", "/v2/logging", document).json() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"log_info": 1}', 400),
        (b'{"log_info": "true"}', 400),
        (b'{"log_verbose_level": -1}', 400),
        (b'{"log_verbose_level": "1"}', 400),
        (b'{"log_verbose_level": true}', 400),
        (b'{"log_format": 1}', 400),
        (b'{"log_format": "xml"}', 400),
        (b'{"log_file": "/tmp/x"}', 501),
        (b'{"log_level": 1}', 400),
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(ask, error, body, status):
    before = ask("GET", "/v2/logging").json()
    assert error(ask("POST", "/v2/logging", data=body), status)
    assert ask("GET", "/v2/logging").json() == before
