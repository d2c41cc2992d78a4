"""Outputs in shared memory: written before the client hears of them, in order, and regions are free after every end."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from posix_object import PosixObject

from naiad.core.region_sink import Completion, RegionSink
from naiad.errors import Code, InferenceServerError, cancelled
from naiad.memory.client_regions.region import LARGE_BYTES, Region
from naiad.request.call import RegionSlice
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BY_NAME

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")

SIZE = 4 * LARGE_BYTES


class Listener:
    """A frontend's sink that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        self.told.append((response and [(output.name, output.region) for output in response.outputs], is_final))

    def fail(self, error: InferenceServerError) -> None:
        self.told.append(error)

    def when_writable(self, _callback: Any) -> bool:
        return True


class Threads:
    """Runs jobs when told to."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def run(self) -> None:
        completion: Completion = self.jobs.pop(0)()
        completion()


@pytest.fixture
def memory():
    with PosixObject(SIZE) as made:
        yield made


@pytest.fixture
def region(memory):
    made = Region("r", memory.key, 0, SIZE)
    yield made
    assert made.users == 1
    made.release()


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def threads():
    return Threads()


@pytest.fixture
def sink(listener, threads, region):
    made = RegionSink(listener, threads.jobs.append)
    made.place("Y", region, RegionSlice("r", 8, SIZE - 8))
    return made


def response(value: float, count: int = 2, name: str = "Y") -> InferResponse:
    output = OutputTensor(name, BY_NAME["FP32"], np.full(count, value, np.float32))
    return InferResponse("m", "1", "", [output])


LARGE = LARGE_BYTES // 4 + 1


def test_a_small_output_is_written_before_it_is_told(sink, memory, listener, region):
    assert region.users == 2
    sink.send(response(1), True)
    assert listener.told == [([("Y", RegionSlice("r", 8, 8))], True)]
    assert memory.read(8, 8) == np.ones(2, np.float32).tobytes()


def test_bytes_have_their_length_prefixes(sink, memory, listener):
    array = np.array([b"ab", b""], dtype=object)
    sink.send(InferResponse("m", "1", "", [OutputTensor("Y", BY_NAME["BYTES"], array)]), True)
    assert listener.told == [([("Y", RegionSlice("r", 8, 10))], True)]
    assert memory.read(10, 8) == b"\2\0\0\0ab\0\0\0\0"


def test_an_output_without_a_place_stays_in_the_response(sink, listener):
    sink.send(response(1, name="Z"), True)
    assert listener.told == [([("Z", None)], True)]


def test_a_place_that_is_too_small_fails_the_request_once(listener, threads, region):
    sink = RegionSink(listener, threads.jobs.append)
    sink.place("Y", region, RegionSlice("r", 0, 7))
    sink.send(response(1), False)
    sink.send(response(2), True)
    (error,) = listener.told
    assert error.code is Code.INTERNAL
    assert error.message == (
        "shared memory size specified with the request for output 'Y' (7 bytes) should be at least 8 bytes to hold the results"
    )


def test_of_two_places_of_an_output_the_last_counts(sink, listener, region):
    sink.place("Y", region, RegionSlice("r", 0, 8))
    assert region.users == 2
    sink.send(response(1), True)
    assert listener.told == [([("Y", RegionSlice("r", 0, 8))], True)]


def test_responses_keep_their_order_while_a_large_output_is_written(sink, listener, threads):
    sink.send(response(1, LARGE), False)
    sink.send(response(2), False)
    sink.send(None, True)
    assert listener.told == []
    threads.run()
    assert listener.told == [
        ([("Y", RegionSlice("r", 8, 4 * LARGE))], False),
        ([("Y", RegionSlice("r", 8, 8))], False),
        (None, True),
    ]


def test_a_model_that_sends_waits_for_the_writing(sink, threads):
    resumed = []
    assert sink.when_writable(lambda: resumed.append("never"))
    sink.send(response(1, LARGE), False)
    assert not sink.when_writable(lambda: resumed.append(1))
    threads.run()
    assert resumed == [1]
    sink.send(None, True)


def test_a_request_that_is_given_up_while_its_output_is_written_ends_at_once_and_frees_its_region_after(
    sink, listener, threads, region
):
    sink.send(response(1, LARGE), True)
    sink.fail(cancelled())
    assert [error.code for error in listener.told] == [Code.CANCELLED]
    assert region.users == 2
    threads.run()
    assert len(listener.told) == 1


@pytest.mark.parametrize("count", [2, LARGE])
def test_an_object_that_has_shrunk_meanwhile_fails_the_request_and_is_left_as_it_is(sink, listener, threads, memory, count):
    memory.resize(4)
    sink.send(response(1, count), True)
    if threads.jobs:
        threads.run()
    (error,) = listener.told
    assert "has shrunk" in error.message
    assert memory.path.stat().st_size == 4


def test_a_request_that_was_refused_frees_its_regions(sink, listener):
    sink.release()
    sink.release()
    assert listener.told == []


def test_many_strings_are_encoded_on_a_thread(sink, listener, threads, memory):
    array = np.full(5000, b"x", dtype=object)
    sink.send(InferResponse("m", "1", "", [OutputTensor("Y", BY_NAME["BYTES"], array)]), True)
    assert listener.told == []
    threads.run()
    assert listener.told == [([("Y", RegionSlice("r", 8, 25_000))], True)]
    assert memory.read(25_000, 8) == b"\1\0\0\0x" * 5000
