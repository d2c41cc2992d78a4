"""Rules of remembered heads and answers: exactly one allowed request, whole, and nothing once who may ask has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from fake_service import FakeService
from fake_transport import FakeTransport
from raw_http import infer, post

from naiad.config.options import ApiKey
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.http.app import create_app
from naiad.frontends.http.connection.known_requests import KnownAnswers
from naiad.frontends.http.connection.protocol import HttpConnection
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.http.options import HttpOptions
from naiad.observability.statistics import ModelStatistics
from naiad.request.call import InferCall
from naiad.request.request import InferRequest
from naiad.request.responder import Responder, ResponseSink
from naiad.request.response import InferResponse, OutputTensor
from naiad.request.service import InferHandle
from naiad.tensor.datatype import FP32

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


class Kept:
    """An answer that stands as long as `is_valid`; counts how often it was given again."""

    def __init__(self) -> None:
        self.is_valid = True
        self.count = 0

    def repeat(self) -> bool:
        self.count += self.is_valid
        return self.is_valid


class CachingService(FakeService):
    """Answers every inference as a hit of the cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()
        self.is_fixed = True
        self.asked_count = 0

    def leads_to_one(self, name: str, version: str) -> bool:
        return self.is_fixed

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        self.asked_count += 1
        output = OutputTensor("Y", FP32, np.full((1, 1), 7, np.float32))
        request = InferRequest({}, ("Y",), 1, Responder(sink, ModelStatistics(), 0), 0)
        request.responder.send(InferResponse("m", "1", call.id, [output], kept=self.kept))
        return request


@pytest.fixture
def caching() -> CachingService:
    return CachingService()


@pytest.fixture
def caching_site(caching) -> Iterator[HttpSite]:
    loop = asyncio.new_event_loop()
    made = HttpSite(caching, HttpOptions(), create_app(caching, HttpOptions()), loop)
    yield made
    made.close()
    loop.close()


ASKING = infer("m", [1.0])


def written(site: HttpSite, *pieces: bytes) -> list[bytes]:
    """Return what a new connection writes for each of the pieces."""

    async def run() -> list[bytes]:
        connection = HttpConnection(site)
        transport = FakeTransport(connection)
        sizes = [0]
        for piece in pieces:
            transport.feed(piece)
            sizes.append(len(transport.written))
        connection.connection_lost(None)
        return [bytes(transport.written[start:end]) for start, end in pairwise(sizes)]

    return site.loop.run_until_complete(run())


def test_the_same_bytes_get_the_same_bytes_while_the_cache_holds_the_answer(caching, caching_site):
    answers = written(caching_site, *[ASKING] * 4)
    assert len(set(answers)) == 1
    assert answers[0].startswith(b"HTTP/1.1 200 OK\r\n")
    # The first taught the head, the second the whole request.
    assert (caching.asked_count, caching.kept.count) == (2, 2)
    caching.kept.is_valid = False
    assert (written(caching_site, ASKING), caching.asked_count) == (answers[:1], 3)


def test_other_bytes_are_asked(caching, caching_site):
    written(caching_site, *[ASKING] * 3)
    written(caching_site, infer("m", [2.0]), infer("m", [1.0], id="a"), ASKING + ASKING)
    assert (caching.asked_count, caching.kept.count) == (2 + 4, 1)


def test_pieces_of_a_request_are_asked(caching, caching_site):
    written(caching_site, *[ASKING] * 3)
    written(caching_site, ASKING[:50], ASKING[50:])
    assert (caching.asked_count, caching.kept.count) == (3, 1)


@pytest.mark.parametrize("change", ["tell_readiness", "unfix", "drain"])
def test_nothing_is_known_once_a_request_may_lead_elsewhere(caching, caching_site, change):
    if change == "tell_readiness":
        written(caching_site, *[ASKING] * 3)
        caching.tell_readiness()
        assert len(caching_site.answers) == 0
        return
    caching.is_fixed = change != "unfix"
    caching.draining = change == "drain"
    for _ in range(3):
        written(caching_site, ASKING)
    assert (caching.asked_count, len(caching_site.answers)) == (3, 0)


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_what_is_in_shared_memory_is_asked_each_time(caching, caching_site, where):
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    item = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
    if where == "inputs":
        del item["data"]
        message = {"inputs": [{**item, "parameters": region}]}
    else:
        message = {"inputs": [item], "outputs": [{"name": "Y", "parameters": region}]}
    request = post("/v2/models/m/infer", json.dumps(message).encode())
    written(caching_site, *[request] * 4)
    assert (caching.asked_count, caching.kept.count) == (4, 0)


def test_what_is_remembered_is_bounded(caching, caching_site):
    for number in range(1500):
        request = infer("m", [float(number)], id="x" * 8000)
        written(caching_site, request, request)
    assert 100 < len(caching_site.answers) < 1024
    large = infer("m", [1.0], id="x" * 20_000)
    before = len(caching_site.answers)
    written(caching_site, *[large] * 3)
    assert len(caching_site.answers) == before


def test_removed_keys_get_no_answer_that_was_remembered(keys, path, caching):
    loop = asyncio.new_event_loop()
    site = HttpSite(caching, HttpOptions(api_keys=keys), create_app(caching, HttpOptions()), loop)
    asking = post("/v2/models/m/infer", ASKING.partition(b"\r\n\r\n")[2], f"Authorization: Bearer {KEY}")
    assert written(site, *[asking] * 3)[2].startswith(b"HTTP/1.1 200")
    path.write_text("other-key-0123456789")
    keys.reload()
    assert written(site, asking)[0].startswith(b"HTTP/1.1 401")
    site.close()
    loop.close()


def test_the_bound_holds_when_answers_to_the_same_requests_grow():
    answers, kept = KnownAnswers(), Kept()
    for size in (1, 16_000):
        for number in range(2000):
            answers.learn(b"%d" % number, kept, b"x" * size)
    assert sum(len(data) + len(response) for data, (_, response) in answers._known.items()) <= 8 << 20
    assert answers._size_bytes == sum(len(data) + len(response) for data, (_, response) in answers._known.items())
    assert len(answers.find(b"1999") or b"") == 16_000
