"""The same requests to Naiad and to the real C++ Triton: equal statuses and answers, but for what differs on purpose.

Not part of `make test`: `make conformance-triton` brings Triton onto the machine when it isn't there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests
from real_triton import serving_triton
from server_process import ServerProcess
from triton_models import write_for_naiad, write_for_triton
from triton_requests import REQUESTS

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

# A fault of the client that Triton answers with 500, or takes, is a 400 of Naiad's: name → Triton's status.
REFUSED_BY_NAIAD = {
    **dict.fromkeys(
        (
            "no json", "no inputs", "too few values", "too many values", "text for number", "float for integer",
            "number for boolean", "negative shape", "text shape", "id not text", "negative priority",
            "generate number for text", "generate null", "generate no json", "index bad", "log settings empty",
            "log settings type",
        ),
        500,
    ),
    "log settings format": 503,
    "overflow": 200,
    "broken gzip": 200,
}  # fmt: skip
# The model takes any number of strings; Naiad reads the one string of a raw request as one.
TAKEN_BY_NAIAD = {"raw string": 400}
# An empty list counts as absent, so the output that copies it is absent too.
OTHER_ANSWER = {"generate empty list": ("stop_words_seen", [])}


@pytest.fixture(scope="module")
def triton(tmp_path_factory) -> Iterator[str]:
    """The URL of a C++ Triton."""
    with serving_triton(tmp_path_factory.mktemp("triton"), write_for_triton) as server:
        yield f"http://{server.address.host}:{server.address.port}"


@pytest.fixture(scope="module")
def naiad(tmp_path_factory, serve_for_module) -> ServerProcess:
    return serve_for_module(write_for_naiad(tmp_path_factory.mktemp("naiad")))


def ask(url: str, name: str) -> requests.Response:
    request = REQUESTS[name]
    return requests.request(request.method, url + request.path, data=request.body, headers=request.headers, timeout=10)


def comparable(response: requests.Response) -> tuple[Any, bytes]:
    """Return JSON part and binary section, numbers as FP32 holds them: Triton writes them with the digits of a double."""
    size = int(response.headers.get("inference-header-content-length", len(response.content)))
    text = response.content[:size].removeprefix(b"data: ")
    document = json.loads(text, parse_float=np.float32) if text.strip() else None
    if isinstance(document, dict) and document.get("platform") in ("python", "identity"):
        document["platform"] = ""
    return repr(document) if not isinstance(document, dict) else document, response.content[size:]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_tritons_but_for_what_differs_on_purpose(triton, naiad, name):
    theirs, ours = ask(triton, name), ask(naiad.url, name)
    if name in REFUSED_BY_NAIAD:
        assert (theirs.status_code, ours.status_code) == (REFUSED_BY_NAIAD[name], 400)
    elif name in TAKEN_BY_NAIAD:
        assert (theirs.status_code, ours.status_code) == (TAKEN_BY_NAIAD[name], 200)
    elif name in OTHER_ANSWER:
        key, value = OTHER_ANSWER[name]
        document = theirs.json()
        assert document.pop(key) == value
        assert ours.json() == document
    else:
        assert ours.status_code == theirs.status_code, (theirs.text, ours.text)
        if theirs.status_code == 200 and theirs.content:
            assert ours.headers["content-type"] == theirs.headers["content-type"]
            assert comparable(ours) == comparable(theirs)
