"""Who a request is from, by a header or by its API key."""

from __future__ import annotations

import pytest

from naiad.config.options import ApiKey
from naiad.config.options.scheduling_options import ClientKey
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.clients import client_reader

NAMED, UNNAMED = "0123456789abcdef", "fedcba9876543210"
KEYS = ApiKeys([ApiKey.of(NAMED, "gold"), ApiKey.of(UNNAMED)])


def test_without_a_key_nobody_is_asked() -> None:
    assert client_reader(None, KEYS) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"host", b"h"), (b"x-tenant", b"a"), (b"x-tenant", b"b")], "a"),
        ([(b"host", b"h")], ""),
        ([(b"x-tenant", b"")], ""),
        ([(b"x-tenant", b"\xe9\xff")], "éÿ"),
        ([(b"x-tenant", b"n" * 1000)], "n" * 256),
    ],
)
def test_a_header_names_the_client_the_first_one_counts(headers: list[tuple[bytes, bytes]], expected: str) -> None:
    reader = client_reader(ClientKey("x-tenant"), None)
    assert reader is not None
    assert reader(headers) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"Bearer {NAMED}", "gold"),
        (f"bearer  {UNNAMED}", f"key-{ApiKey.of(UNNAMED).digest.hex()[:8]}"),
        ("Bearer of-nobody-at-all", ""),
        ("Basic Zm9vOmJhcg==", ""),
    ],
)
def test_an_api_key_names_the_client(value: str, expected: str) -> None:
    reader = client_reader(ClientKey(), KEYS)
    assert reader is not None
    assert reader([(b"authorization", value.encode())]) == expected
    assert reader([]) == ""
