"""Rules of shadow copies: they own their data, are bounded, end counted, and never touch what was copied."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from naiad.config.traffic import TrafficSettings
from naiad.core.traffic.policy import Split, sequence_point
from naiad.core.traffic.routes import ModelTraffic, SharedRoutes
from naiad.core.traffic.shadow import INLINE_BYTES, ShadowRequests, ShadowResult
from naiad.core.validate import CheckedCall
from naiad.errors import internal, unavailable
from naiad.observability.statistics import ModelStatistics
from naiad.request.call import InferCall
from naiad.request.request import InferRequest, Sequence


class Version:
    """A route and its model, whose scheduler keeps what it gets or raises `fault`."""

    def __init__(self, number: int) -> None:
        self.requests: list[InferRequest] = []
        self.fault: Exception | None = None
        self.statistics = ModelStatistics()
        self.plan = SimpleNamespace(name="m", version=number)
        self.model = self

    def enqueue(self, request: InferRequest) -> None:
        if self.fault is not None:
            raise self.fault
        self.requests.append(request)


class Thread:
    """Keeps jobs until they are run."""

    def __init__(self) -> None:
        self.jobs = []

    def __call__(self, job) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        completions = [job() for job in self.jobs]
        self.jobs.clear()
        for complete in completions:
            complete()


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def shadow(thread) -> ShadowRequests:
    return ShadowRequests(thread)


@pytest.fixture
def version() -> Version:
    return Version(3)


def call_of(array: np.ndarray, sequence_id: int = 0) -> tuple[InferCall, CheckedCall]:
    call = InferCall("m", id="seven", parameters={"a": 1}, sequence_id=sequence_id, is_sequence_start=True)
    call.priority, call.timeout_us = 2, 5000
    return call, CheckedCall({"X": array}, ("Y",), 2)


def test_a_copy_says_the_same_and_owns_its_data(shadow, version):
    data = np.arange(4, dtype=np.float32)
    shadow.send(*call_of(data, 9), version, 1)
    (copy,) = version.requests
    assert (copy.id, copy.parameters, copy.priority, copy.timeout_us) == ("seven", {"a": 1}, 2, 5000)
    assert (copy.outputs, copy.batch_size, copy.sequence) == (("Y",), 2, Sequence(9, True, False))
    data[:] = 0
    assert copy.inputs["X"].tolist() == [0, 1, 2, 3]
    assert not np.shares_memory(copy.inputs["X"], data)


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (lambda copy: copy.responder.send(None), ShadowResult.SUCCESS),
        (lambda copy: copy.responder.fail(internal("bad")), ShadowResult.FAILURE),
        (lambda copy: copy.cancel(), ShadowResult.CANCELLED),
    ],
)
def test_how_a_copy_ends_is_counted_once(shadow, version, end, result):
    shadow.send(*call_of(np.zeros(1)), version, 1)
    assert shadow.in_flight_count == 1
    end(version.requests[0])
    end(version.requests[0])
    assert (dict(shadow.counts), shadow.in_flight_count) == ({(3, result): 1}, 0)


def test_a_copy_counts_in_the_statistics_of_its_version(shadow, version):
    shadow.send(*call_of(np.zeros(1)), version, 2)
    shadow.send(*call_of(np.zeros(1)), version, 2)
    version.requests[0].responder.send(None)
    version.requests[1].responder.fail(internal("bad"))
    assert (version.statistics.success_count, version.statistics.failure_count) == (1, 1)


def test_one_too_many_is_dropped_and_room_is_made_by_an_end(shadow, version):
    for _ in range(5):
        shadow.send(*call_of(np.zeros(1)), version, 2)
    assert (len(version.requests), shadow.in_flight_count) == (2, 2)
    assert shadow.counts[3, ShadowResult.DROPPED] == 3
    version.requests[0].responder.send(None)
    shadow.send(*call_of(np.zeros(1)), version, 2)
    assert len(version.requests) == 3


def test_many_responses_of_one_copy_are_one_success(shadow, version):
    shadow.send(*call_of(np.zeros(1)), version, 1)
    responder = version.requests[0].responder
    for is_final in (False, False, True):
        assert responder.when_writable(lambda: None)
        responder.send(None, is_final)
    assert dict(shadow.counts) == {(3, ShadowResult.SUCCESS): 1}


def test_a_refused_copy_is_counted_and_raises_nothing(shadow, version):
    version.fault = unavailable("the queue is full")
    shadow.send(*call_of(np.zeros(1)), version, 1)
    assert (dict(shadow.counts), shadow.in_flight_count) == ({(3, ShadowResult.REFUSED): 1}, 0)
    assert (version.statistics.refused_count, version.statistics.failure_count) == (1, 0)


def test_a_fault_of_the_server_in_a_copy_is_logged_and_raises_nothing(shadow, version, caplog):
    version.fault = RuntimeError("a bug")
    shadow.send(*call_of(np.zeros(1)), version, 1)
    assert (dict(shadow.counts), shadow.in_flight_count) == ({(3, ShadowResult.FAILURE): 1}, 0)
    assert "a copy for version 3 of model 'm' failed by a fault of the server" in caplog.text


def test_large_inputs_are_copied_on_a_thread_and_count_as_in_flight_meanwhile(shadow, version, thread):
    data = np.ones(INLINE_BYTES + 1, np.uint8)
    shadow.send(*call_of(data), version, 1)
    assert (version.requests, shadow.in_flight_count, len(thread.jobs)) == ([], 1, 1)
    shadow.send(*call_of(data), version, 1)
    assert shadow.counts[3, ShadowResult.DROPPED] == 1
    thread.run()
    assert not np.shares_memory(version.requests[0].inputs["X"], data)


def test_copies_keep_the_order_of_calls_whatever_their_size(shadow, version, thread):
    large, small = np.ones(INLINE_BYTES + 1, np.uint8), np.ones(1, np.uint8)
    for array in (small, large, small, large, small):
        shadow.send(*call_of(array, 9), version, 9)
    assert len(version.requests) == 1
    thread.jobs.reverse()
    thread.run()
    assert [request.inputs["X"].size for request in version.requests] == [1, INLINE_BYTES + 1, 1, INLINE_BYTES + 1, 1]


def test_one_that_there_is_no_memory_for_is_dropped_and_those_behind_it_go_on(shadow, version, thread):
    class Unaffordable(np.ndarray):
        def copy(self, order="C"):
            raise MemoryError

    shadow.send(*call_of(np.ones(INLINE_BYTES + 1, np.uint8).view(Unaffordable)), version, 9)
    shadow.send(*call_of(np.ones(1)), version, 9)
    thread.run()
    assert (dict(shadow.counts), shadow.in_flight_count) == ({(3, ShadowResult.DROPPED): 1}, 1)
    assert [request.inputs["X"].size for request in version.requests] == [1]


def test_a_version_that_left_while_inputs_were_copied_refuses(shadow, version, thread):
    shadow.send(*call_of(np.ones(INLINE_BYTES + 1, np.uint8)), version, 1)
    version.fault = unavailable("the model is being unloaded")
    thread.run()
    assert (dict(shadow.counts), shadow.in_flight_count) == ({(3, ShadowResult.REFUSED): 1}, 0)


def test_strings_are_elements_of_their_own_and_arent_copied_one_by_one(shadow, version, thread):
    strings = np.array([b"a"] * (INLINE_BYTES // 4), object)
    shadow.send(*call_of(strings), version, 1)
    assert (version.requests[0].inputs["X"] is strings, thread.jobs) == (True, [])


def test_the_end_of_the_server_gives_up_what_is_in_flight_and_makes_no_more(shadow, version, thread):
    shadow.send(*call_of(np.zeros(1)), version, 9)
    shadow.send(*call_of(np.ones(INLINE_BYTES + 1, np.uint8)), version, 9)
    shadow.stop()
    thread.run()
    shadow.send(*call_of(np.zeros(1)), version, 9)
    assert dict(shadow.counts) == {(3, ShadowResult.CANCELLED): 1, (3, ShadowResult.DROPPED): 2}
    assert (shadow.in_flight_count, len(version.requests)) == (0, 1)


# --- which requests are copied


def shared(
    shadow: ShadowRequests, settings: TrafficSettings, versions: dict[int, Version], points: list[float]
) -> SharedRoutes:
    drawn = iter(points)
    return SharedRoutes(ModelTraffic(shadow), settings, versions, Split(settings.weights), max(versions), lambda: next(drawn))


def test_a_request_is_copied_by_the_share_of_each_shadow_version(shadow):
    versions = {number: Version(number) for number in (1, 2, 3)}
    routes = shared(shadow, TrafficSettings({1: 1}, {2: 0.5, 3: 0.1}), versions, [0.49, 0.1, 0.5, 0.09])
    for _ in range(2):
        routes.accepted(*call_of(np.zeros(1)), versions[1])
    assert [len(versions[number].requests) for number in (1, 2, 3)] == [0, 1, 1]


def test_of_a_sequence_all_requests_are_copied_or_none(shadow):
    versions = {number: Version(number) for number in (1, 2)}
    routes = shared(shadow, TrafficSettings({1: 1}, {2: 0.5}, 1000), versions, [])
    for number in range(1, 101):
        for _ in range(2):
            routes.accepted(*call_of(np.zeros(1), number), versions[1])
    copied = [request.sequence.id for request in versions[2].requests]
    assert copied == [number for number in range(1, 101) if sequence_point(number, "shadow 2") < 0.5 for _ in range(2)]
    assert 60 < len(copied) < 140


def test_memory_of_clients_and_versions_that_are_not_ready_are_counted_and_not_copied(shadow):
    versions = {number: Version(number) for number in (1, 2)}
    routes = shared(shadow, TrafficSettings({1: 1}, {2: 1, 9: 1}), versions, [0, 0, 0, 0])
    call, checked = call_of(np.zeros(1))
    call.is_uncached = True
    routes.accepted(call, checked, versions[1])
    routes.accepted(*call_of(np.zeros(1)), versions[1])
    assert dict(shadow.counts) == {
        (2, ShadowResult.SKIPPED): 1,
        (9, ShadowResult.SKIPPED): 1,
        (9, ShadowResult.REFUSED): 1,
    }
    assert len(versions[2].requests) == 1


def test_a_version_gets_no_copy_of_what_it_answers_itself(shadow):
    versions = {2: Version(2)}
    routes = SharedRoutes(ModelTraffic(shadow), TrafficSettings({}, {2: 1}), versions, None, 2, lambda: 0)
    assert routes.choose(InferCall("m")) is versions[2]
    routes.accepted(*call_of(np.zeros(1)), versions[2])
    assert versions[2].requests == []


def test_a_request_goes_where_the_drawn_point_lies(shadow):
    versions = {number: Version(number) for number in (1, 2)}
    routes = shared(shadow, TrafficSettings({1: 3, 2: 1}, {}), versions, [0, 0.74, 0.75, 0.99])
    assert [routes.choose(InferCall("m")).plan.version for _ in range(4)] == [1, 1, 2, 2]
