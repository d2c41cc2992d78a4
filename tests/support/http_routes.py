"""The POST routes of the protocol, each with a good body and the status that it gets on the shared servers."""

from __future__ import annotations

POSTS = [
    "/v2/models/echo0/infer",
    "/v2/models/gen/generate",
    "/v2/models/gen/generate_stream",
    "/v2/repository/index",
    "/v2/repository/models/echo/load",
    "/v2/repository/models/echo/unload",
    "/v2/logging",
]
GOOD_BODIES = {
    "/v2/models/echo0/infer": b'{"inputs":[{"name":"X","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "/v2/models/gen/generate": b'{"text_input":"a"}',
    "/v2/models/gen/generate_stream": b'{"text_input":"a"}',
    "/v2/repository/index": b'{"ready":true}',
    "/v2/repository/models/echo/load": b"{}",
    "/v2/repository/models/echo/unload": b"{}",
    "/v2/logging": b"{}",
}
GOOD_STATUS = {path: 503 if path.endswith("load") else 200 for path in POSTS}
