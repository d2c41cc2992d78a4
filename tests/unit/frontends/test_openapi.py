"""Rules of the OpenAPI document and of the page that shows it."""

from __future__ import annotations

import base64
import hashlib
import re

import asgi
import pytest
from fake_service import FakeService

from naiad.config.options import ApiKey, RestrictedGroup
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.http.admin import table
from naiad.frontends.http.admin.paths import variants
from naiad.frontends.http.app import create_app
from naiad.frontends.http.options import HttpOptions

METHODS = ("get", "post", "delete")


@pytest.fixture
def document(call) -> dict:
    return call("GET", "/openapi.json").json


def operations(document: dict):
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item, item[method]


def references(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_document_has_every_method_of_every_path_of_the_table(document):
    expected = {
        (path, method.lower())
        for endpoint in table.endpoints()
        for path in variants(endpoint.path)
        for method in endpoint.operations
    }
    assert {(path, method) for path, method, _, _ in operations(document)} == expected
    assert ("/v2/models/{model}/versions/{version}/infer", "post") in expected


def test_the_document_is_openapi_3_1_of_this_server(document):
    assert (document["openapi"], document["info"]["version"]) == ("3.1.0", "1.2.3")


def test_every_parameter_of_a_path_is_described_and_required(document):
    for path, _, item, _ in operations(document):
        described = {parameter["name"] for parameter in item.get("parameters", []) if parameter["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", path))
        assert all(parameter["required"] for parameter in item.get("parameters", []))


def test_no_two_operations_have_the_same_id(document):
    ids = [operation["operationId"] for _, _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere_and_every_schema_is_used(document):
    used = set(references(document))
    for reference in used:
        place = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert schemas <= used


def test_errors_have_a_schema_everywhere(document):
    for _, _, _, operation in operations(document):
        assert {"$ref": "#/components/responses/Error"} in operation["responses"].values()


def test_what_is_not_built_promises_no_success(document):
    unbuilt = [path for path, _, _, operation in operations(document) if "200" not in operation["responses"]]
    assert unbuilt
    assert all("trace" in path for path in unbuilt)


def test_a_restricted_endpoint_names_its_header_and_its_403():
    group = RestrictedGroup(frozenset({"logging"}), "Admin-Key", "v")
    app = create_app(FakeService(), HttpOptions(restricted=(group,)))
    paths = asgi.call(app, "GET", "/openapi.json").json["paths"]
    logging = paths["/v2/logging"]["get"]
    assert [(parameter["name"], parameter["in"]) for parameter in logging["parameters"]] == [("admin-key", "header")]
    assert "403" in logging["responses"]
    assert "parameters" not in paths["/v2"]["get"]


# --- the page


@pytest.fixture
def page(call) -> asgi.Reply:
    return call("GET", "/docs")


def test_the_page_is_html_that_needs_nothing_from_elsewhere(page):
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert re.findall(rb"https?://|src=|@import", page.body) == []


def test_the_page_may_run_its_own_script_and_style_and_nothing_else(page):
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), page.body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"


def test_every_field_of_the_page_has_a_label(page):
    fields = re.findall(rb'<(?:input|textarea) id="([^"]+)"', page.body)
    assert len(fields) == 5
    for field in fields:
        assert b'<label for="%b">' % field in page.body


def test_the_page_never_puts_text_in_as_markup(page):
    assert re.findall(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", page.body) == []


def test_the_document_says_what_needs_an_api_key() -> None:
    keys = ApiKeys([ApiKey.of("first-key-0123456789")], open_groups=("health", "metadata"))
    document = asgi.call(create_app(FakeService(), HttpOptions(api_keys=keys)), "GET", "/openapi.json").json
    assert document["components"]["securitySchemes"] == {"apiKey": {"type": "http", "scheme": "bearer"}}
    secured = {path for path, _, _, operation in operations(document) if operation.get("security") == [{"apiKey": []}]}
    assert secured == {path for path, _, _, operation in operations(document) if "401" in operation["responses"]}
    assert "/v2/models/{model}/infer" in secured
    assert not secured & {"/v2", "/v2/health/live", "/v2/models/{model}/ready"}


def test_without_api_keys_the_document_knows_none(document) -> None:
    assert "securitySchemes" not in document["components"]
    assert not any("security" in operation or "401" in operation["responses"] for _, _, _, operation in operations(document))
