"""A call of another model ends once on either side, whoever goes first, and leaves no memory."""

from __future__ import annotations

import asyncio

import numpy as np
import orjson
import pytest
from event_loops import run_on_asyncio
from fake_worker import Bench, small_arena, xy_plan

from naiad.errors import InferenceServerError, not_found
from naiad.memory.arena import Block
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import FP32
from naiad.worker.api.tensor import Tensor
from naiad.worker.frames import FLAG_DECOUPLED, FLAG_FINAL, Frame, Kind


def on_bench(**fields):
    def decorate(test):
        async def run() -> None:
            bench = Bench(**fields)
            await test(bench)
            await asyncio.sleep(0)
            await bench.instance.close()
            assert bench.process.arena.block_count == 0

        def wrapped() -> None:
            run_on_asyncio(run())

        return wrapped

    return decorate


def call(bench, number: int = 1, *, size: int = 4, flags: int = 0, **more) -> None:
    """Call model b in the service of nobody known."""
    inputs, block = bench.process.write(Tensor("X", np.full((1, size), number, np.float32)))
    bench.process.push(Kind.CALL, number, {"model": "b", "inputs": inputs, **more}, block=block, flags=flags)


def response(value: float = 1, size: int = 4) -> InferResponse:
    return InferResponse("b", "1", "", [OutputTensor("Y", FP32, np.full((1, size), value, np.float32))])


def answers(bench) -> list[Frame]:
    """Return the responses that came since the last call; the caller lets their memory go."""
    frames = bench.process.take(Kind.CALL_RESPONSE)
    if bench.process.death is None:
        bench.process.release(*frames)
    return frames


def error_of(frame: Frame) -> str:
    return orjson.loads(frame.tail)["error"][1]


@on_bench()
async def test_a_call_goes_to_the_server_and_its_answer_into_the_callers_memory(bench):
    call(bench, 3, parameters={"a": 1}, outputs=["Y"], correlation_id=7, flags=0)
    (asked,) = bench.service.calls
    assert (asked.call.model_name, asked.call.parameters, asked.call.sequence_id) == ("b", {"a": 1}, 7)
    assert np.frombuffer(asked.call.inputs[0].buffer, np.float32).tolist() == [3.0] * 4
    asked.sink.send(response(5), is_final=True)
    (frame,) = bench.process.take(Kind.CALL_RESPONSE)
    assert (frame.id, frame.flags) == (3, FLAG_FINAL)
    (output,) = orjson.loads(frame.tail)["outputs"]
    data = bytes(bench.process.seen.view(frame.segment, frame.offset, frame.size))
    assert np.frombuffer(data, np.float32, 4, output[3]).tolist() == [5.0] * 4
    bench.process.release(frame)


@on_bench()
async def test_a_call_that_is_refused_gets_the_error(bench):
    bench.service.fault = not_found("no model b")
    call(bench)
    (frame,) = answers(bench)
    assert (frame.flags, error_of(frame)) == (FLAG_FINAL, "no model b")


@on_bench(plan=xy_plan(is_decoupled=True))
async def test_the_callee_waits_when_the_caller_does_not_read(bench):
    call(bench, flags=FLAG_DECOUPLED)
    sink = bench.service.calls[0].sink
    woken: list[int] = []
    for index in range(16):
        assert sink.when_writable(lambda index=index: woken.append(index))
        sink.send(response(), is_final=False)
    assert not sink.when_writable(lambda: woken.append(99))
    sink.send(response(), is_final=False)  # One that was on its way.
    bench.process.push(Kind.CALL_CREDIT, 1, value=1)
    assert woken == []
    bench.process.push(Kind.CALL_CREDIT, 1, value=1)
    assert woken == [99]
    sink.send(None, is_final=True)
    assert [frame.flags for frame in answers(bench)] == [0] * 17 + [FLAG_FINAL]


@on_bench()
async def test_a_call_that_is_given_up_cancels_the_callee_and_ends_once(bench):
    call(bench)
    bench.process.push(Kind.CALL_CANCEL, 1)
    (asked,) = bench.service.calls
    assert asked.handle.cancel_count == 1
    asked.sink.send(response(), is_final=True)
    assert [frame.flags for frame in answers(bench)] == [FLAG_FINAL]
    bench.process.push(Kind.CALL_CANCEL, 1)
    bench.process.push(Kind.CALL_CREDIT, 1, value=4)
    assert bench.process.broken == []


@on_bench()
async def test_a_callee_that_waits_is_woken_when_its_call_is_given_up(bench):
    call(bench, flags=FLAG_DECOUPLED)
    sink = bench.service.calls[0].sink
    for _ in range(16):
        sink.send(response(), is_final=False)
    woken: list[int] = []
    assert not sink.when_writable(lambda: woken.append(1))
    bench.process.push(Kind.CALL_CANCEL, 1)
    assert woken == [1]
    assert sink.when_writable(lambda: woken.append(2))
    answers(bench)


@on_bench()
async def test_the_death_of_the_caller_cancels_every_callee(bench):
    for number in (1, 2, 3):
        call(bench, number)
    probe = bench.probe()
    bench.submit(probe)
    bench.process.die()
    assert [asked.handle.cancel_count for asked in bench.service.calls] == [1, 1, 1]
    assert (probe.end_count, bench.done) == (1, [0])


@on_bench()
async def test_a_call_made_for_a_cancelled_request_is_cancelled(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    call(bench, 1, caller=execute.id)
    call(bench, 2)  # For both.
    probes[0].request.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [asked.handle.cancel_count > 0 for asked in bench.service.calls] == [True, False]
    probes[1].request.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [asked.handle.cancel_count > 0 for asked in bench.service.calls] == [True, True]
    assert [frame.flags for frame in answers(bench)] == [FLAG_FINAL] * 2
    bench.process.answer(execute)


@on_bench(arena=small_arena(4096))
async def test_an_answer_that_does_not_fit_is_an_error_and_cancels_the_callee(bench):
    call(bench, flags=FLAG_DECOUPLED)
    (asked,) = bench.service.calls
    asked.sink.send(response(size=2000), is_final=False)
    (frame,) = answers(bench)
    assert "doesn't fit" in error_of(frame)
    assert (frame.flags, asked.handle.cancel_count) == (FLAG_FINAL, 1)
    asked.sink.send(response(), is_final=True)
    assert answers(bench) == []


@on_bench()
async def test_the_callers_block_is_given_back_when_the_callee_lets_it_go(bench):
    call(bench, size=1 << 16)
    (asked,) = bench.service.calls
    await asyncio.sleep(0)
    bench.process.end_turn()
    assert bench.process.own.block_count == 1
    asked.call.inputs.clear()
    asked.sink.send(response(), is_final=True)
    for _ in range(3):
        await asyncio.sleep(0)
    bench.instance._outputs._flush()
    answers(bench)
    assert bench.process.own.block_count == 0


LIES = {
    "no JSON": b"{",
    "no object": [],
    "no model": {"inputs": []},
    "a model that is no text": {"model": 3, "inputs": []},
    "no inputs": {"model": "b"},
    "an input without a size": {"model": "b", "inputs": [["X", "FP32", [1], 0]]},
    "a name that is no text": {"model": "b", "inputs": [[1, "FP32", [1], 0, 4]]},
    "a shape that is none": {"model": "b", "inputs": [["X", "FP32", "12", 0, 4]]},
    "a negative size": {"model": "b", "inputs": [["X", "FP32", [-1], 0, 4]]},
    "a truth for a size": {"model": "b", "inputs": [["X", "FP32", [True], 0, 4]]},
    "a negative offset": {"model": "b", "inputs": [["X", "FP32", [1], -4, 4]]},
    "parameters that are none": {"model": "b", "inputs": [], "parameters": []},
    "a parameter that is a list": {"model": "b", "inputs": [], "parameters": {"a": []}},
    "a caller that is a list": {"model": "b", "inputs": [], "caller": []},
    "outputs that are no texts": {"model": "b", "inputs": [], "outputs": [1]},
    "a sequence that is null": {"model": "b", "inputs": [], "correlation_id": None},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_call_that_lies_breaks_the_worker(lie):
    @on_bench()
    async def check(bench):
        bench.process.push(Kind.CALL, 1, lie)
        assert (len(bench.process.broken), bench.service.calls) == (1, [])

    check()


@on_bench()
async def test_a_call_whose_block_is_nowhere_or_whose_id_is_taken_breaks_the_worker(bench):
    bench.process.push(Kind.CALL, 1, {"model": "b", "inputs": []}, block=Block(5, 0, 8))
    assert len(bench.process.broken) == 1
    call(bench, 2)
    call(bench, 2)
    assert len(bench.process.broken) == 2


@on_bench()
async def test_an_error_of_the_callee_reaches_the_caller(bench):
    call(bench)
    bench.service.calls[0].sink.fail(InferenceServerError(not_found("x").code, "gone wrong"))
    (frame,) = answers(bench)
    assert error_of(frame) == "gone wrong"
