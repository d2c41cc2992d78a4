"""gRPC-Web's media types, its trailers, and base64 in pieces of any size."""

from __future__ import annotations

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.frontends.grpc.web.framing import TextDecoder, encode_text, media_types, trailers_frame


@pytest.mark.parametrize(
    ("content_type", "accept", "expected"),
    [
        (b"application/grpc-web", b"", (False, b"application/grpc-web+proto")),
        (b"application/grpc-web+proto", b"*/*", (False, b"application/grpc-web+proto")),
        (b"application/grpc-web-text", b"", (True, b"application/grpc-web-text+proto")),
        (b"Application/gRPC-Web-Text+proto; charset=x", b"", (True, b"application/grpc-web-text+proto")),
        (b"application/grpc-web", b"text/html, application/grpc-web-text", (False, b"application/grpc-web-text+proto")),
        (b"application/grpc-web-text", b"application/grpc-web", (True, b"application/grpc-web+proto")),
    ],
)
def test_the_answer_has_the_accepted_form_or_else_the_requests(content_type, accept, expected):
    types = media_types(content_type, accept)
    assert types is not None
    assert (types.request_is_text, types.response_type) == expected


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"application/grpc",
        b"application/json",
        b"application/grpc-web+json",
        b"application/grpc-webx",
        b"application/grpc-web-",
    ],
)
def test_other_types_are_none_of_grpc_web(content_type):
    assert media_types(content_type, b"application/grpc-web") is None


def test_trailers_are_lines_of_http_behind_a_flag_and_their_length():
    assert trailers_frame([(b"grpc-status", b"5"), (b"grpc-message", b"no%25")]) == (
        b"\x80\x00\x00\x00\x25grpc-status: 5\r\ngrpc-message: no%25\r\n"
    )


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(1, 9))
def test_padded_parts_in_any_pieces_are_decoded(parts, size):
    text = b"".join(map(encode_text, parts))
    decoder = TextDecoder()
    found = b"".join(decoder.feed(text[start : start + size]) for start in range(0, len(text), size))
    decoder.end()
    assert found == b"".join(parts)


def standard(text: bytes) -> bytes | None:
    """What the standard library makes of each group of four, None when it refuses one."""
    try:
        return b"".join(base64.b64decode(text[start : start + 4], validate=True) for start in range(0, len(text), 4))
    except binascii.Error:
        return None


def decoded(text: bytes) -> bytes:
    decoder = TextDecoder()
    found = decoder.feed(text)
    decoder.end()
    return found


@given(st.lists(st.text("Ab9+/===-\n", min_size=4, max_size=4), max_size=4).map(lambda quads: "".join(quads).encode()))
def test_each_group_is_decoded_or_refused_as_the_standard_library_does(text):
    expected = standard(text)
    if expected is None:
        with pytest.raises(InferenceServerError, match="the body is not base64"):
            decoded(text)
    else:
        assert decoded(text) == expected


@pytest.mark.parametrize("text", [b"AA=A", b"A===", b"====", b"=AAA", b"AA\r\n", b"A-_A", b"AAA\xff"])
def test_misplaced_padding_and_strange_characters_are_refused(text):
    with pytest.raises(InferenceServerError, match="the body is not base64") as caught:
        TextDecoder().feed(text)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("text", [b"A", b"AAA", b"AAAAAA"])
def test_a_body_cut_off_within_a_group_is_refused(text):
    decoder = TextDecoder()
    decoder.feed(text)
    with pytest.raises(InferenceServerError, match="left over"):
        decoder.end()
