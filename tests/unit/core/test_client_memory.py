"""Calls with regions: what the core gets instead of them, and that a refused call holds nothing."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from fake_device_memory import FakeDeviceMemory
from posix_object import PosixObject

from naiad.core.client_memory import ClientMemory
from naiad.errors import Code, InferenceServerError, invalid_argument
from naiad.memory.client_regions.region import LARGE_BYTES
from naiad.request.call import CallInput, CallOutput, InferCall, RegionSlice
from naiad.request.service import SystemRegion

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")

SIZE = 4 * LARGE_BYTES


@pytest.fixture
def key():
    with PosixObject(SIZE) as made:
        made.write(b"abcdefgh")
        yield made.key


@pytest.fixture
def memory(key):
    made = ClientMemory(True, lambda job: job()(), FakeDeviceMemory())
    made.register_system_region("r", key, 0, SIZE)
    yield made
    made.release_all()


def accepted(memory: ClientMemory, *inputs: CallInput, outputs: tuple[CallOutput, ...] = ()) -> InferCall:
    """Return the call that the core gets to see."""
    seen: list[Any] = []
    memory.infer(InferCall("m", inputs=list(inputs), outputs=list(outputs)), SimpleNamespace(), lambda *got: seen.extend(got))
    call, sink = seen
    sink.release()
    return call


def region_input(size: int, offset: int = 0) -> CallInput:
    return CallInput("X", "UINT8", [size], region=RegionSlice("r", offset, size))


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ([CallInput("X", "UINT8", [1], b"1")], [CallOutput("Y")], False),
        ([], [], False),
        ([CallInput("A", "UINT8", [1], b"1"), region_input(8)], [], True),
        ([], [CallOutput("Y"), CallOutput("Z", region=RegionSlice("r", 0, 8))], True),
    ],
)
def test_calls_with_a_region_are_told_from_others(inputs, outputs, expected):
    assert InferCall("m", inputs=inputs, outputs=outputs).uses_regions is expected


def test_the_core_sees_buffers_and_no_regions(memory):
    plain = CallInput("B", "UINT8", [1], b"1")
    call = accepted(memory, region_input(4, 2), plain, outputs=(CallOutput("Y", region=RegionSlice("r", 0, 8)),))
    assert not call.uses_regions
    assert call.inputs == [CallInput("X", "UINT8", [4], b"cdef"), plain]
    assert call.outputs == [CallOutput("Y")]


def test_a_call_copies_a_bounded_number_of_bytes_however_many_pieces_it_names(memory):
    call = accepted(memory, *[region_input(LARGE_BYTES // 2) for _ in range(5)])
    assert [type(item.buffer) for item in call.inputs] == [bytes, bytes, memoryview, memoryview, memoryview]
    assert {bytes(item.buffer[:8]) for item in call.inputs} == {b"abcdefgh"}


@pytest.mark.parametrize("refusal", [invalid_argument("no"), RuntimeError("a fault")])
def test_a_call_that_the_core_refuses_holds_no_region(memory, refusal):
    def accept(_call: InferCall, sink: Any) -> Any:
        sinks.append(sink)
        raise refusal

    sinks: list[Any] = []
    call = InferCall("m", outputs=[CallOutput("Y", region=RegionSlice("r", 0, 8))])
    with pytest.raises(type(refusal)):
        memory.infer(call, SimpleNamespace(), accept)
    assert memory._regions.find("r").users == 1


def test_a_second_region_that_is_not_there_lets_go_of_the_first(memory):
    outputs = tuple(CallOutput(name, region=RegionSlice(name, 0, 8)) for name in ("r", "nobody"))
    with pytest.raises(InferenceServerError) as caught:
        accepted(memory, outputs=outputs)
    assert caught.value.code is Code.NOT_FOUND
    assert memory._regions.find("r").users == 1


def test_what_is_registered_is_told_and_all_is_forgotten_at_the_end(memory, key):
    assert memory.system_regions("") == memory.system_regions("r") == [SystemRegion("r", key, 0, SIZE)]
    memory.unregister_system_region("")
    assert memory.system_regions("") == []
