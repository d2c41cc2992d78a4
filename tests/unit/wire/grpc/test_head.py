"""The head of a gRPC call and the trailers of its answer."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from naiad.errors import Code
from naiad.wire.grpc.head import read_head, status_fields

CALL = ((b":method", b"POST"), (b":path", b"/s.S/M"), (b"content-type", b"application/grpc"))


def test_a_plain_call() -> None:
    head = read_head(CALL)
    assert (head.path, head.timeout_s, head.coding, head.http_status, head.error) == (b"/s.S/M", None, "identity", 200, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"250m", 0.25), (b"1u", 1e-6), (b"99999999n", 0.099999999), (b"0S", 0)],
)
def test_timeouts_in_every_unit(text, seconds) -> None:
    assert read_head((*CALL, (b"grpc-timeout", text))).timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"S", b"5", b"-1S", b"123456789S", b"1.5S", b"1 S", b"1s"])
def test_a_timeout_that_is_none_ends_the_call(text) -> None:
    error = read_head((*CALL, (b"grpc-timeout", text))).error
    assert error is not None
    assert error.code is Code.INVALID_ARGUMENT
    assert "grpc-timeout" in error.message


@pytest.mark.parametrize("content_type", [b"application/grpc", b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_content_types_of_grpc(content_type) -> None:
    assert read_head((*CALL[:2], (b"content-type", content_type))).http_status == 200


@pytest.mark.parametrize("content_type", [b"", b"application/json", b"application/grpcx", b"application/grpc+json", b"text/x"])
def test_other_content_types_are_415(content_type) -> None:
    assert read_head((*CALL[:2], (b"content-type", content_type))).http_status == 415


def test_another_method_is_405() -> None:
    assert read_head(((b":method", b"GET"), *CALL[1:])).http_status == 405


def test_an_unknown_coding_is_unimplemented() -> None:
    error = read_head((*CALL, (b"grpc-encoding", b"br"))).error
    assert error is not None
    assert error.code is Code.UNIMPLEMENTED


def test_a_status_message_is_percent_encoded() -> None:
    text = "50 % of “ünicode”\nand a new line"
    fields = dict(status_fields(3, text))
    assert fields[b"grpc-status"] == b"3"
    assert all(0x20 <= byte <= 0x7E for byte in fields[b"grpc-message"])
    assert unquote(fields[b"grpc-message"].decode()) == text


def test_a_huge_status_message_is_cut() -> None:
    assert len(dict(status_fields(3, "x" * 100_000))[b"grpc-message"]) < 10_000


def test_the_trailers_say_when_to_try_again_only_where_that_is_known() -> None:
    assert dict(status_fields(14, "busy", 3))[b"grpc-retry-pushback-ms"] == b"3000"
    assert b"grpc-retry-pushback-ms" not in dict(status_fields(14, "busy"))
