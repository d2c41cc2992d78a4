"""Compressed bodies both ways: what is taken, what is chosen, and that a broken body is told from a wrong one."""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest
import tritonclient.http as triton

DOCUMENT = json.dumps({"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}).encode()
PACKED = {"gzip": gzip.compress(DOCUMENT, mtime=0), "deflate": zlib.compress(DOCUMENT), "identity": DOCUMENT}


@pytest.fixture
def post(ask):
    def send(body, coding, model="echo", **headers):
        lines = {"Content-Encoding": coding, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return ask("POST", f"/v2/models/{model}/infer", data=body, headers=lines)

    return send


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity", "GZIP", "Deflate"])
def test_a_request_may_be_compressed(post, coding):
    response = post(PACKED[coding.lower()], coding)
    assert response.json()["outputs"][0]["data"] == [1.0, 2.0]


def test_a_bare_deflate_stream_is_taken_too(post):
    packer = zlib.compressobj(wbits=-15)
    assert post(packer.compress(DOCUMENT) + packer.flush(), "deflate").status_code == 200


def test_all_members_of_a_gzip_body_count(post):
    assert post(gzip.compress(DOCUMENT[:20]) + gzip.compress(DOCUMENT[20:]), "gzip").status_code == 200


def test_the_length_header_counts_decompressed_bytes(post):
    item = {"name": "X", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [item]}).encode()
    blob = np.array([1, 2], np.float32).tobytes()
    response = post(gzip.compress(head + blob), "gzip", Inference_Header_Content_Length=str(len(head)))
    assert response.json()["outputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, deflate", "x"])
def test_another_coding_is_501_and_the_answer_tells_which_are_taken(post, error, coding):
    response = post(DOCUMENT, coding)
    assert "Unsupported compression type" in error(response, 501)
    assert response.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("body", "coding", "words"),
    [
        (DOCUMENT, "gzip", "is not valid gzip data"),
        (DOCUMENT, "deflate", "is not valid deflate data"),
        (PACKED["gzip"][:-4], "gzip", "is cut off"),
        (PACKED["gzip"][:30], "gzip", "is cut off"),
        (PACKED["gzip"] + b"junk", "gzip", "is not valid gzip data"),
        (PACKED["deflate"][:-1], "deflate", "is cut off"),
        (PACKED["deflate"] + b"junk", "deflate", "follow the end"),
        (b"", "gzip", "is cut off"),
        (PACKED["gzip"][:-8] + b"\0\0\0\0" + PACKED["gzip"][-4:], "gzip", "is not valid gzip data"),
    ],
    ids=["no-gzip", "no-deflate", "gzip-cut", "gzip-cut-early", "gzip-junk", "deflate-cut", "deflate-junk", "nothing", "sum"],
)
def test_a_broken_body_is_refused_and_says_so(post, error, body, coding, words):
    assert words in error(post(body, coding))


def test_what_a_body_unpacks_to_is_bounded(post, error):
    bomb = gzip.compress(DOCUMENT[:-1] + b" " * (20 << 20) + b"}")
    assert len(bomb) < 40_000
    assert "--http-max-input-size" in error(post(bomb, "gzip"))


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("deflate;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;q=0.5, identity;q=0.9", "identity"),
        ("gzip;q=0", "identity"),
        ("br, gzip;q=0.1", "gzip"),
        ("*", "identity"),
        ("br", "identity"),
        ("gzip;q=x, deflate;q=0.1", "deflate"),
        ("GZIP", "gzip"),
        ("", "identity"),
        (";;,,=", "identity"),
    ],
)
def test_the_response_has_the_first_coding_of_the_highest_weight(ask, accept, chosen):
    response = ask("POST", "/v2/models/echo/infer", data=DOCUMENT, headers={"Accept-Encoding": accept})
    assert response.headers.get("content-encoding", "identity") == chosen
    assert response.json()["outputs"][0]["data"] == [1.0, 2.0]


def test_errors_are_never_compressed(ask, error):
    response = ask("POST", "/v2/models/echo/infer", data=b"{", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert "failed to parse" in error(response)


@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_tritonclient_compresses_both_ways(client, request_coding, response_coding, is_binary):
    array = np.arange(1000, dtype=np.float32).reshape(2, 500)
    made = triton.InferInput("X", [2, 500], "FP32")
    made.set_data_from_numpy(array, binary_data=is_binary)
    result = client.infer(
        "echo",
        [made],
        outputs=[triton.InferRequestedOutput("Y", binary_data=is_binary)],
        request_compression_algorithm=request_coding,
        response_compression_algorithm=response_coding,
    )
    assert np.array_equal(result.as_numpy("Y"), array)


@pytest.mark.parametrize("coding", ["gzip", "br"])
@pytest.mark.parametrize("end", ["generate", "generate_stream"])
def test_generate_takes_no_compressed_body(ask, error, end, coding):
    headers = {"Content-Encoding": coding}
    body = gzip.compress(b'{"text_input": "hi"}')
    assert f"'{coding}'" in error(ask("POST", f"/v2/models/gen/{end}", data=body, headers=headers))


def test_generate_never_compresses(ask):
    response = ask("POST", "/v2/models/gen/generate", data=b'{"text_input": "hi"}', headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert response.json()["text_output"] == "hi"
