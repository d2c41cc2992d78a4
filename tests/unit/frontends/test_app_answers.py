"""Rules of what the endpoints answer."""

from __future__ import annotations

import logging
from base64 import b64encode

import orjson
import pytest

from naiad.errors import Code, InferenceServerError, not_found, unavailable
from naiad.frontends.http.status import STATUS_OF_CODE
from naiad.request.service import IndexEntry

READY = IndexEntry("a", "1", "READY", "")
FAILED = IndexEntry("b", "1", "UNAVAILABLE", "no file")
LOADING = IndexEntry("c", "", "LOADING", "")
UNLOADED = IndexEntry("d", "1", "UNAVAILABLE", "unloaded")

# --- health


def test_live_is_200_without_a_body(call):
    reply = call("GET", "/v2/health/live")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-type"].startswith("text/plain")


def test_live_stays_200_while_the_server_drains(call, service):
    service.draining, service.ready = True, False
    assert call("GET", "/v2/health/live").status == 200


def test_live_is_400_when_the_server_does_not_run(call, service):
    service.live = False
    assert (call("GET", "/v2/health/live").status, call("GET", "/v2/health/live").body) == (400, b"")


def test_ready_is_200_without_a_body(call):
    assert (call("GET", "/v2/health/ready").status, call("GET", "/v2/health/ready").body) == (200, b"")


@pytest.mark.parametrize("index", [[], [READY], [READY, UNLOADED], [LOADING], [FAILED, LOADING]])
def test_ready_is_503_while_that_will_change_by_itself(call, service, index):
    service.ready, service.index = False, index
    reply = call("GET", "/v2/health/ready")
    assert (reply.status, reply.error) == (503, "Server not ready")


@pytest.mark.parametrize("index", [[FAILED], [READY, FAILED], [FAILED, UNLOADED]])
def test_ready_is_400_without_a_body_when_a_model_has_failed(call, service, index):
    service.ready, service.index = False, index
    reply = call("GET", "/v2/health/ready")
    assert (reply.status, reply.body) == (400, b"")


def test_ready_does_not_look_at_the_repositories(call, service):
    service.ready, service.index, service.fault = False, [FAILED], RuntimeError("the disk hangs")
    assert call("GET", "/v2/health/ready").status == 400
    assert service.index_filters == []


def test_ready_is_503_while_the_server_drains_whatever_its_models_do(call, service):
    service.ready, service.draining, service.index = False, True, [FAILED]
    reply = call("GET", "/v2/health/ready")
    assert (reply.status, reply.error) == (503, "Server exiting")


def test_a_model_is_ready_as_the_service_says(call, service):
    assert (call("GET", "/v2/models/echo/ready").status, call("GET", "/v2/models/echo/ready").body) == (200, b"")
    service.model_ready = False
    reply = call("GET", "/v2/models/echo/versions/1/ready")
    assert (reply.status, reply.error) == (400, "Model version not ready")
    service.draining = True
    reply = call("GET", "/v2/models/echo/versions/1/ready")
    assert (reply.status, reply.error) == (503, "Server not ready")


# --- metadata


def test_the_servers_metadata_is_in_the_protocols_order(call):
    reply = call("GET", "/v2")
    assert reply.headers["content-type"] == "application/json"
    assert reply.body == b'{"name":"naiad","version":"1.2.3","extensions":["classification","logging"]}'


def test_a_models_metadata_is_in_the_protocols_order(call):
    reply = call("GET", "/v2/models/echo/versions/3")
    assert reply.body == (
        b'{"name":"echo","versions":["3"],"platform":"python","inputs":[{"name":"X","datatype":"FP32","shape":[-1,16]},'
        b'{"name":"S","datatype":"BYTES","shape":[-1,1]}],"outputs":[{"name":"Y","datatype":"FP32","shape":[-1,16]}]}'
    )


def test_the_config_is_passed_on_with_64_bit_numbers(call):
    assert b'"max_queue_delay_microseconds":9223372036854775808' in call("GET", "/v2/models/echo/config").body


def test_statistics_are_of_all_of_one_model_or_of_one_version(call, service):
    for path in ("/v2/models/stats", "/v2/models/echo/stats", "/v2/models/echo/versions/2/stats"):
        assert list(call("GET", path).json) == ["model_stats"]
    assert service.asked == [("", ""), ("echo", ""), ("echo", "2")]


# --- repository


def test_the_index_leaves_out_what_is_empty(call, service):
    service.index = [
        IndexEntry("a", "1", "READY", ""),
        IndexEntry("b", "", "UNAVAILABLE", "no file"),
        IndexEntry("c", "", "", ""),
    ]
    assert call("POST", "/v2/repository/index").json == [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "b", "state": "UNAVAILABLE", "reason": "no file"},
        {"name": "c"},
    ]


@pytest.mark.parametrize(
    ("body", "is_ready_only"), [(b"", False), (b"{}", False), (b'{"ready":true}', True), (b'{"ready":false}', False)]
)
def test_the_index_is_filtered_by_ready(call, service, body, is_ready_only):
    for path in ("/v2/repository/index", "/v2/repository/r/index"):
        assert call("POST", path, body).status == 200
    assert service.index_filters == [is_ready_only] * 2


@pytest.mark.parametrize("value", [b"1", b'"true"', b"null", b"[]"])
def test_an_index_filter_that_is_no_boolean_is_400(call, value):
    reply = call("POST", "/v2/repository/index", b'{"ready":%b}' % value)
    assert reply.status == 400
    assert "'ready' must be true or false" in reply.error


def test_a_name_that_is_no_unicode_does_not_break_the_index(call, service):
    service.index = [IndexEntry("b\udcff", "1", "READY", "")]
    assert call("POST", "/v2/repository/index").json[0]["name"] == "b\\udcff"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters":{}}'])
def test_load_needs_no_parameters(call, service, body):
    reply = call("POST", "/v2/repository/models/echo/load", body)
    assert (reply.status, reply.body) == (200, b"")
    assert service.loaded == [("echo", {})]


def test_load_passes_the_config_as_text_and_files_as_bytes(call, service):
    parameters = {"config": "{}", "file:1/model.onnx": b64encode(b"\x00\xff").decode()}
    assert call("POST", "/v2/repository/models/echo/load", orjson.dumps({"parameters": parameters})).status == 200
    assert service.loaded == [("echo", {"config": "{}", "file:1/model.onnx": b"\x00\xff"})]


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"confg": "{}"}, "'confg'"),
        ({"config": {}}, "'config' must be a string, got an object"),
        ({"config": 1}, "a number"),
        ({"file:1/m": None}, "null"),
        ({"file:1/m": "*"}, "base64"),
        ({"file:1/m": "ü"}, "base64"),
        ([], "'parameters' must be an object, got an array"),
        (None, "null"),
    ],
)
def test_a_wrong_load_parameter_is_400_that_names_it(call, service, parameters, word):
    reply = call("POST", "/v2/repository/models/echo/load", orjson.dumps({"parameters": parameters}))
    assert reply.status == 400
    assert word in reply.error
    assert service.loaded == []


@pytest.mark.parametrize(("body", "expected"), [(b"", False), (b'{"parameters":{"unload_dependents":true}}', True)])
def test_unload_tells_whether_dependents_go_too(call, service, body, expected):
    reply = call("POST", "/v2/repository/models/echo/unload", body)
    assert (reply.status, reply.body) == (200, b"")
    assert service.unloaded == [("echo", expected)]


def test_an_unload_flag_that_is_no_boolean_is_400(call, service):
    assert call("POST", "/v2/repository/models/echo/unload", b'{"parameters":{"unload_dependents":1}}').status == 400
    assert service.unloaded == []


@pytest.mark.parametrize("end", ["load", "unload"])
def test_a_repository_name_is_501_for_load_and_unload(call, service, end):
    reply = call("POST", f"/v2/repository/r/models/echo/{end}")
    assert reply.status == 501
    assert "'r'" in reply.error
    assert (service.loaded, service.unloaded) == ([], [])


@pytest.mark.parametrize("end", ["load", "unload"])
def test_a_control_mode_that_forbids_it_is_503_with_the_services_text(call, service, end):
    service.fault = unavailable("explicit model load / unload is not allowed if polling is enabled")
    reply = call("POST", f"/v2/repository/models/echo/{end}")
    assert (reply.status, reply.error) == (503, "explicit model load / unload is not allowed if polling is enabled")


# --- logging


def test_log_settings_are_shown(call, service):
    assert call("GET", "/v2/logging").json == service.logs


def test_log_settings_are_changed_and_all_of_them_are_the_answer(call, service):
    assert call("POST", "/v2/logging", b'{"log_info":false}').json == {**service.logs, "log_info": False}
    assert service.logs["log_info"] is False


def test_a_log_change_needs_a_body_and_may_change_nothing(call):
    assert call("POST", "/v2/logging", b"").status == 400
    assert call("POST", "/v2/logging", b"{}").status == 200


def test_a_setting_that_the_service_refuses_is_its_error(call):
    reply = call("POST", "/v2/logging", b'{"log_info":1}')
    assert (reply.status, reply.error) == (400, "'log_info' must be true or false")


# --- errors


@pytest.mark.parametrize("code", list(Code))
def test_every_error_has_the_status_of_its_code(call, service, code):
    service.fault = InferenceServerError(code, "text")
    reply = call("GET", "/v2")
    assert (reply.status, reply.error) == (STATUS_OF_CODE[code], "text")
    assert reply.headers["content-type"] == "application/json"


def test_an_error_text_that_is_no_unicode_is_still_json(call, service):
    service.fault = not_found("'\udcff'")
    assert call("GET", "/v2").error == "'\\udcff'"


def test_a_fault_of_the_server_is_a_500_that_tells_nothing_and_is_logged(call, service, caplog, monkeypatch):
    # Whatever set the server's logging up may keep records from the root, where caplog listens.
    monkeypatch.setattr(logging.getLogger("naiad"), "propagate", True)
    service.fault = ZeroDivisionError("a secret of the server")
    reply = call("GET", "/v2")
    assert (reply.status, reply.error) == (500, "internal error, see the server's log")
    assert "a secret of the server" in caplog.text
    assert "Traceback" in caplog.text
