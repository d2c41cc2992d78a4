"""The OpenAPI 3.1 document, made from the route table.

Owns the form of the document. Schemas are package data (`static/schemas.json`): they describe, nothing is validated with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from naiad.frontends.access import AccessRules
from naiad.frontends.http.admin import paths
from naiad.frontends.http.admin.endpoint import JSON, Content, Endpoint, Operation

Json = dict[str, Any]

_PARAMETER_TEXTS = {
    "model": "Name of the model, percent-encoded where a URL asks for it",
    "version": "Version of the model; without it, the latest that is ready",
    "repository": "Name of the repository; has no meaning here",
    "region": "Name of the shared memory region",
}
_API_KEY = "apiKey"
_UNAUTHENTICATED: Json = {"401": {"$ref": "#/components/responses/Error"}}
_DESCRIPTION = "The KServe v2 inference protocol over HTTP/1.1 with the extensions of Triton Inference Server."


def document(endpoints: Iterable[Endpoint], access: AccessRules, schemas: Json, version: str) -> Json:
    """Return the document; endpoints list what they ask for: an API key, and the header of a restricted API."""
    components: Json = {"schemas": schemas, "responses": {"Error": {"description": "What is wrong", **_content("Error")}}}
    if access.has_keys:
        components["securitySchemes"] = {_API_KEY: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Naiad", "version": version, "description": _DESCRIPTION},
        "paths": {
            path: _path_item(endpoint, path, access.header_of(endpoint.api), access.needs_key(endpoint.api))
            for endpoint in endpoints
            for path in paths.variants(endpoint.path)
        },
        "components": components,
    }


def _path_item(endpoint: Endpoint, path: str, header: str, needs_key: bool) -> Json:
    names = paths.parameters(path)
    item: Json = {"parameters": [_path_parameter(name) for name in names]} if names else {}
    for method, operation in endpoint.operations.items():
        item[method.lower()] = {
            "operationId": _operation_id(method, path),
            "tags": [endpoint.api],
            "summary": operation.summary + (" (not built yet)" if operation.is_unbuilt else ""),
            **({"parameters": [_header_parameter(header)]} if header else {}),
            **({"security": [{_API_KEY: []}]} if needs_key else {}),
            **_request(operation.request),
            "responses": {**_responses(operation, bool(header)), **(_UNAUTHENTICATED if needs_key else {})},
        }
    return item


def _path_parameter(name: str) -> Json:
    schema = {"type": "string", "pattern": "^[0-9]+$"} if name == "version" else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "description": _PARAMETER_TEXTS[name], "schema": schema}


def _header_parameter(header: str) -> Json:
    text = "This API is restricted: only requests with this header's value are answered"
    return {"name": header, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}


def _operation_id(method: str, path: str) -> str:
    words = path.replace("/v2", "", 1).replace("{", "").replace("}", "").replace("/", "_")
    return f"{method.lower()}{words or '_server'}"


def _request(content: Content | None) -> Json:
    if content is None:
        return {}
    return {"requestBody": {"required": not content.is_optional, **_content(content.schema, content.media_types)}}


def _responses(operation: Operation, is_restricted: bool) -> Json:
    error = {"$ref": "#/components/responses/Error"}
    if operation.is_unbuilt:
        return {"501": error}
    content = operation.response
    body = {} if content is None else _content(content.schema, content.media_types)
    refusal = {"403": error} if is_restricted else {}
    return {"200": {"description": operation.summary, **body}, **refusal, "default": error}


def _content(schema: str, media_types: tuple[str, ...] = (JSON,)) -> Json:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"content": {media_type: {"schema": reference} for media_type in media_types}}
