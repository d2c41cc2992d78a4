"""Rules of remembered heads: exactly one allowed request, whole; nothing else, and nothing once who may ask has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from fake_service import FakeService
from fake_transport import FakeTransport
from raw_http import post

from naiad.config.options import ApiKey
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.http.app import create_app
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.http.options import HttpOptions

KEY = "first-key-0123456789"
# The body is no JSON: the connection answers it by itself.
REQUEST = post("/v2/models/m/infer", b"{", f"Authorization: Bearer {KEY}")
REFUSED = post("/v2/models/m/infer", b"{")
EMPTY = post("/v2/models/m/infer", b"", f"Authorization: Bearer {KEY}")


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "keys.txt"
    made.write_text(KEY)
    made.chmod(0o600)
    return made


@pytest.fixture
def keys(path) -> ApiKeys:
    return ApiKeys([ApiKey.of("given-key-0123456789")], path)


@pytest.fixture
def site(keys) -> Iterator[HttpSite]:
    loop = asyncio.new_event_loop()
    options = HttpOptions(api_keys=keys)
    service = FakeService()
    made = HttpSite(service, options, create_app(service, options), loop)
    yield made
    made.close()
    loop.close()


def statuses(site: HttpSite, *pieces: bytes) -> list[int]:
    """Return the status of each response on a new connection that gets these pieces."""

    async def run() -> bytes:
        connection = HttpConnection(site)
        transport = FakeTransport(connection)
        for piece in pieces:
            transport.feed(piece)
        connection.connection_lost(None)
        return transport.written

    written = site.loop.run_until_complete(run())
    return [int(part[:3]) for part in written.split(b"HTTP/1.1 ")[1:]]


def test_an_allowed_head_is_remembered(site):
    assert statuses(site, REQUEST, REQUEST) == [400, 400]
    assert site.heads.find(REQUEST) is not None


def test_a_refused_head_is_not(site):
    assert statuses(site, REFUSED, REFUSED) == [401, 401]
    assert site.heads.find(REFUSED) is None


def test_removed_keys_open_nothing_that_was_remembered(site, keys, path):
    assert statuses(site, REQUEST, REQUEST) == [400, 400]
    path.write_text("other-key-0123456789")
    keys.reload()
    assert site.heads.find(REQUEST) is None
    assert statuses(site, REQUEST, REQUEST) == [401, 401]


@pytest.mark.parametrize("blank", [b"\r\n\r\n", b"\n\r\n\r\n", b"\r\n\r\n\r\n\r\n"])
def test_blank_lines_behind_a_request_are_no_request(site, blank):
    assert statuses(site, EMPTY, blank, blank) == [400]
    assert statuses(site, blank) == []
