"""Content codings: all members, within the limit, and clear errors for broken bodies."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import Code, InferenceServerError
from naiad.wire.compression import compress, decompress, negotiate

LIMIT = 1 << 20
PAYLOAD = bytes(range(256)) * 300


def bare_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def refusal(body: bytes, coding: str, limit: int = LIMIT) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as caught:
        decompress(body, coding, limit)
    return caught.value


@given(st.lists(st.binary(max_size=200), max_size=5), st.sampled_from(["gzip", "deflate"]))
def test_what_is_compressed_comes_back(buffers: list[bytes], coding: str) -> None:
    views = [memoryview(buffer) for buffer in buffers]
    assert decompress(compress(views, coding), coding, 1000) == b"".join(buffers)


def test_formats_are_those_of_the_standard_library() -> None:
    assert gzip.decompress(compress([PAYLOAD], "gzip")) == PAYLOAD
    assert zlib.decompress(compress([PAYLOAD], "deflate")) == PAYLOAD


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(PAYLOAD), "gzip"),
        (gzip.compress(PAYLOAD[:700]) + gzip.compress(b"") + gzip.compress(PAYLOAD[700:]), "gzip"),
        (zlib.compress(PAYLOAD), "deflate"),
        (bare_deflate(PAYLOAD), "deflate"),
        (PAYLOAD, "identity"),
    ],
    ids=["gzip", "gzip members", "zlib", "bare deflate", "identity"],
)
def test_whole_body_is_read(body: bytes, coding: str) -> None:
    assert decompress(body, coding, len(PAYLOAD)) == PAYLOAD
    assert decompress(memoryview(bytearray(body)), coding, LIMIT) == PAYLOAD


@pytest.mark.parametrize("cut", [0, 1, 5, 11, 100, -1])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_cut_body_is_refused(cut: int, coding: str) -> None:
    error = refusal(compress([PAYLOAD], coding)[:cut], coding)
    assert error.code is Code.INVALID_ARGUMENT
    assert "cut off" in error.message


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("spoil", [lambda body: b"\xff" + body[1:], lambda body: body[:-1] + bytes([body[-1] ^ 1])])
def test_broken_body_is_refused(coding: str, spoil: object) -> None:
    assert callable(spoil)
    error = refusal(spoil(compress([PAYLOAD], coding)), coding)
    assert error.code is Code.INVALID_ARGUMENT
    assert f"not valid {coding} data" in error.message


def test_bytes_behind_the_end_are_refused() -> None:
    assert "not valid gzip data" in refusal(gzip.compress(b"a") + b"rest", "gzip").message
    assert "4 byte(s) follow the end" in refusal(zlib.compress(b"a") + b"rest", "deflate").message


def test_limit_is_met_exactly() -> None:
    body = gzip.compress(PAYLOAD[:1000]) + gzip.compress(PAYLOAD[1000:2000])
    assert len(decompress(body, "gzip", 2000)) == 2000
    assert "exceeds the limit of 1999 bytes, raise it with --http-max-input-size" in refusal(body, "gzip", 1999).message


@pytest.mark.parametrize("bomb", [gzip.compress(bytes(20 << 20)), gzip.compress(bytes(1 << 20)) * 20], ids=["one", "members"])
def test_bomb_is_stopped_at_the_limit(bomb: bytes) -> None:
    assert len(bomb) < 30_000
    tracemalloc.start()
    try:
        assert "exceeds the limit" in refusal(bomb, "gzip").message
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * LIMIT


def test_number_of_members_is_bounded() -> None:
    assert "more than 65536 members" in refusal(gzip.compress(b"") * 65_537, "gzip").message


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, deflate", "x" * 1000])
def test_other_coding_is_not_implemented(coding: str) -> None:
    error = refusal(PAYLOAD, coding)
    assert error.code is Code.UNIMPLEMENTED
    assert "Unsupported compression type" in error.message
    assert len(error.message) < 250


@given(st.binary(max_size=60), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_give_a_body_or_the_one_error(body: bytes, coding: str) -> None:
    code = Code.INVALID_ARGUMENT
    try:
        assert len(decompress(body, coding, 1000)) <= 1000
    except InferenceServerError as error:
        code = error.code
    assert code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;q=0.5, identity", "identity"),
        (" gzip ; q=0.50 , br", "gzip"),
        ("gzip;q=0", "identity"),
        ("*", "identity"),
        ("br;q=1, *;q=0.5", "identity"),
        ("gzip;q=2, deflate;q=0.1", "deflate"),
        ("gzip;q=, gzip;q=x, ;, deflate;q=0.001", "deflate"),
        ("gzip;q=nan", "identity"),
        ("gzip;q=1.000", "gzip"),
    ],
)
def test_first_of_the_highest_weight_wins(accepted: str, coding: str) -> None:
    assert negotiate(accepted) == coding


@given(st.text(max_size=60))
def test_any_accept_encoding_gives_a_coding(accepted: str) -> None:
    assert negotiate(accepted) in ("identity", "deflate", "gzip")
