"""Calls of other models: answers reach who waits, in every way of waiting, and what nobody takes is given back."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from worker_peer import WorkerPeer, connected_runtime

from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.request import InferenceRequest, InferenceTrace
from naiad.worker.api.tensor import Tensor
from naiad.worker.frames import FLAG_DECOUPLED, FLAG_FINAL, Frame, Kind
from naiad.worker.runtime import Runtime

ONE = np.array([1], np.float32)
TWO = np.array([2], np.float32)
LARGE = np.arange(1 << 17, dtype=np.float32)


@pytest.fixture
def connected():
    with connected_runtime() as (runtime, peer):
        runtime.can_call = True
        yield runtime, peer


def request(array: np.ndarray = ONE, **more: Any) -> InferenceRequest:
    return InferenceRequest(model_name="other", inputs=[Tensor("X", array)], requested_output_names=["X"], **more)


def started(work: Callable[[], Any]) -> Future[Any]:
    """Run the model's part on a thread, since this one is the server."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def values(response) -> list[float]:
    assert response.error() is None
    return response.output_tensors()[0].as_numpy().tolist() if response.output_tensors() else []


def take_call(peer: WorkerPeer) -> Frame:
    call = peer.wait(Kind.CALL)
    if call.size:
        peer.release(call)
    return call


# Plain calls.


def test_a_call_carries_the_request_and_returns_the_response(connected):
    _, peer = connected
    done = started(lambda: values(request(TWO, request_id="r", timeout=7, parameters={"p": 1}).exec()))
    call = peer.wait(Kind.CALL)
    message = json.loads(call.tail)
    assert (message["model"], message["version"], message["id"], message["timeout_us"]) == ("other", "", "r", 7)
    assert message["parameters"] == {"p": 1}
    assert call.flags & FLAG_DECOUPLED == 0
    assert peer.outputs(Frame(*call[:7], json.dumps({"outputs": message["inputs"]}).encode()))["X"].tolist() == [2]
    peer.respond(call, ONE, flags=FLAG_FINAL)
    assert done.result(10) == [1]


def test_an_error_of_the_called_model_is_a_response(connected):
    _, peer = connected
    done = started(lambda: request().exec().error())
    peer.say(Kind.CALL_RESPONSE, take_call(peer).id, {"error": ["NOT_FOUND", "no such model"]}, flags=FLAG_FINAL)
    error = done.result(10)
    assert (error.message(), error.code()) == ("no such model", error.NOT_FOUND)


def test_an_end_without_a_response_is_a_response_without_tensors(connected):
    _, peer = connected
    done = started(lambda: values(request().exec()))
    peer.say(Kind.CALL_RESPONSE, take_call(peer).id, flags=FLAG_FINAL)
    assert done.result(10) == []


def test_models_are_called_while_requests_are_served_only(connected):
    runtime, _ = connected
    runtime.can_call = False
    with pytest.raises(TritonModelException, match="only while requests are served"):
        request().exec()


def test_a_request_that_no_message_can_hold_is_refused_and_takes_no_memory(connected):
    runtime, _ = connected
    with pytest.raises(TritonModelException, match="it can't be sent: Object of type object is not JSON"):
        request(trace=InferenceTrace({"t": object()})).exec()
    assert (runtime._arena.block_count, runtime._calls) == (0, {})


def test_answers_find_their_calls_in_any_order(connected):
    _, peer = connected
    done = {value: started(lambda value=value: values(request(np.array([value], np.float32)).exec())) for value in range(16)}
    by_value = {}
    for _ in range(16):
        call = peer.wait(Kind.CALL)
        (_, _, _, offset, size) = json.loads(call.tail)["inputs"][0]
        by_value[np.frombuffer(peer.mapping.view(call.segment, call.offset + offset, size), np.float32)[0]] = call
        peer.release(call)  # Only now: the next call may use the block.
    for value in reversed(range(16)):
        peer.respond(by_value[value], np.array([value + 100], np.float32), flags=FLAG_FINAL)
    assert [done[value].result(10) for value in range(16)] == [[value + 100] for value in range(16)]


# Memory.


def test_a_small_answer_is_copied_and_its_block_released_at_once(connected):
    _, peer = connected
    done = started(request().exec)
    block = peer.respond(take_call(peer), ONE, flags=FLAG_FINAL)
    peer.wait_released(block)
    assert values(done.result(10)) == [1]


def test_a_large_answer_is_released_when_its_last_array_dies(connected):
    _, peer = connected
    done = started(request().exec)
    block = peer.respond(take_call(peer), LARGE, flags=FLAG_FINAL)
    array = done.result(10).output_tensors()[0].as_numpy()[5:]
    del done
    gc.collect()
    assert peer.kept(Kind.RELEASE) == []
    assert array[0] == 5
    del array
    peer.wait_released(block)


# Decoupled calls.


def test_an_iterator_yields_all_responses_and_gives_credit_back(connected):
    _, peer = connected
    done = started(lambda: [values(response) for response in request().exec(decoupled=True)])
    call = take_call(peer)
    assert call.flags & FLAG_DECOUPLED
    for value in range(10):
        peer.respond(call, np.array([value], np.float32))
    peer.say(Kind.CALL_RESPONSE, call.id, flags=FLAG_FINAL)
    assert done.result(10) == [[value] for value in range(10)] + [[]]
    assert [frame.value for frame in (peer.wait(Kind.CALL_CREDIT), peer.wait(Kind.CALL_CREDIT))] == [4, 4]


def test_an_iterator_that_is_let_go_gives_its_call_up_and_its_blocks_back(connected):
    runtime, peer = connected
    done = started(lambda: next(request().exec(decoupled=True)))
    call = take_call(peer)
    first = peer.respond(call, ONE)
    assert values(done.result(10)) == [1]
    assert peer.wait(Kind.CALL_CANCEL).id == call.id
    peer.wait_released(first)
    late = peer.respond(call, TWO)
    runtime.channel.poll()
    peer.wait_released(late)
    assert runtime._calls == {}


def test_an_iterator_that_was_cancelled_ends(connected):
    _, peer = connected

    def work():
        iterator = request().exec(decoupled=True)
        first = values(next(iterator))
        iterator.cancel()
        iterator.cancel()
        return first, list(iterator)

    done = started(work)
    call = take_call(peer)
    peer.respond(call, ONE)
    assert done.result(10) == ([1], [])
    assert peer.wait(Kind.CALL_CANCEL).id == call.id
    assert peer.kept(Kind.CALL_CANCEL) == []


def test_a_cancel_wakes_the_thread_that_waits_for_a_response(connected):
    _, peer = connected
    iterator = request().exec(decoupled=True)
    done = started(lambda: list(iterator))
    call = take_call(peer)
    iterator.cancel()
    assert peer.wait(Kind.CALL_CANCEL).id == call.id
    peer.say(Kind.CALL_RESPONSE, call.id, flags=FLAG_FINAL)
    assert done.result(10) == []


def test_a_cancel_while_responses_come_gives_every_block_back_once(connected):
    runtime, peer = connected
    for _ in range(20):
        iterator = request().exec(decoupled=True)
        done = started(lambda iterator=iterator: len(list(iterator)))
        call = take_call(peer)
        blocks = [peer.respond(call, ONE) for _ in range(3)]
        iterator.cancel()
        peer.wait(Kind.CALL_CANCEL)
        peer.say(Kind.CALL_RESPONSE, call.id, flags=FLAG_FINAL)
        assert done.result(10) <= 3
        del iterator
        released: list[tuple[int, int]] = []
        while len(released) < len(blocks):
            runtime.channel.poll()
            if not (more := peer.released()):
                peer.receive()
            released += more
        assert sorted(released) == sorted((block.segment, block.offset) for block in blocks)


# Coroutines.


def in_loop(work: Callable[[], Any]) -> Future[Any]:
    return started(lambda: asyncio.run(work()))


def test_twenty_calls_of_one_loop_run_together(connected):
    _, peer = connected

    async def work():
        responses = await asyncio.gather(*[request().async_exec() for _ in range(20)])
        return [values(response)[0] for response in responses]

    done = in_loop(work)
    calls = [take_call(peer) for _ in range(20)]
    for index in reversed(range(20)):
        peer.respond(calls[index], np.array([index], np.float32), flags=FLAG_FINAL)
    assert done.result(10) == list(range(20))


def test_loops_of_several_threads_and_plain_calls_do_not_disturb_each_other(connected):
    _, peer = connected

    async def work():
        return [values(await request().async_exec())[0] for _ in range(10)]

    def plain():
        return [values(request().exec())[0] for _ in range(10)]

    done = [in_loop(work), in_loop(work), started(plain), started(plain)]
    for number in range(40):
        peer.respond(take_call(peer), np.array([number], np.float32), flags=FLAG_FINAL)
    assert sorted(value for each in done for value in each.result(10)) == list(range(40))


def test_a_coroutine_walks_a_decoupled_call(connected):
    _, peer = connected

    async def work():
        return [values(response) async for response in await request().async_exec(decoupled=True)]

    done = in_loop(work)
    call = take_call(peer)
    for value in range(5):
        peer.respond(call, np.array([value], np.float32))
    peer.respond(call, np.array([5], np.float32), flags=FLAG_FINAL)
    assert done.result(10) == [[value] for value in range(6)]


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_a_task_that_is_cancelled_gives_its_call_up(connected, way):
    runtime, peer = connected

    async def work():
        if way == "timeout":
            await asyncio.wait_for(request().async_exec(), 0.01)
        task = asyncio.ensure_future(request().async_exec())
        await asyncio.sleep(0)
        task.cancel()
        await task

    done = in_loop(work)
    call = take_call(peer)
    with pytest.raises((asyncio.CancelledError, asyncio.TimeoutError)):
        done.result(10)
    assert peer.wait(Kind.CALL_CANCEL).id == call.id
    late = peer.respond(call, LARGE, flags=FLAG_FINAL)
    runtime.channel.poll()
    peer.wait_released(late)
    assert len(runtime.channel._loops) == 0


def test_a_cancelled_task_leaves_the_other_calls_of_its_loop_alone(connected):
    _, peer = connected

    async def work():
        given_up = asyncio.ensure_future(request().async_exec())
        other = asyncio.ensure_future(request().async_exec())
        await asyncio.sleep(0)
        given_up.cancel()
        return values(await other)

    done = in_loop(work)
    given_up = peer.wait(Kind.CALL_CANCEL).id
    other = next(call for call in (take_call(peer), take_call(peer)) if call.id != given_up)
    peer.respond(other, TWO, flags=FLAG_FINAL)
    assert done.result(10) == [2]


def test_a_cancel_by_another_task_ends_an_iterator(connected):
    _, peer = connected

    async def work():
        iterator = await request().async_exec(decoupled=True)

        async def walk():
            return [values(response) async for response in iterator]

        walking = asyncio.ensure_future(walk())
        await asyncio.sleep(0)
        iterator.cancel()
        return await walking

    assert in_loop(work).result(10) == []
    assert peer.wait(Kind.CALL_CANCEL)


def test_a_loop_that_was_closed_with_a_call_open_harms_nobody(connected):
    runtime, peer = connected
    loop = asyncio.new_event_loop()
    task = loop.create_task(request().async_exec())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    call = take_call(peer)
    other = started(lambda: values(request().exec()))
    other_call = take_call(peer)
    peer.respond(call, ONE, flags=FLAG_FINAL)
    peer.respond(other_call, TWO, flags=FLAG_FINAL)
    assert other.result(10) == [2]
    task._log_destroy_pending = False
    del task, loop
    gc.collect()
    assert runtime._calls == {}
    assert len(runtime.channel._loops) == 0


# Questions.


def test_questions_of_many_threads_get_their_own_answers(connected):
    runtime, peer = connected
    done = {name: started(lambda name=name: runtime.query(name, {"x": 1})) for name in "abcd"}
    questions = [peer.wait(Kind.QUERY) for _ in range(4)]
    for question in reversed(questions):
        assert json.loads(question.tail)["arguments"] == {"x": 1}
        peer.say(Kind.ANSWER, question.id, {"value": json.loads(question.tail)["name"]})
    assert {name: each.result(10) for name, each in done.items()} == {name: name for name in "abcd"}
    assert runtime._answers == {}


def test_the_error_of_an_answer_is_raised(connected):
    runtime, peer = connected
    done = started(lambda: runtime.query("load_model", {}))
    peer.say(Kind.ANSWER, peer.wait(Kind.QUERY).id, {"error": ["NOT_FOUND", "no such model"]})
    with pytest.raises(TritonModelException, match="no such model"):
        done.result(10)


def test_a_runtime_in_a_forked_process_answers_and_calls_nobody(connected):
    runtime, peer = connected
    assert isinstance(runtime, Runtime)
    runtime.abandon()
    runtime.send_response(1, None, True)
    with pytest.raises(TritonModelException, match="nor in a process that the model has forked"):
        request().exec()
    with pytest.raises(AssertionError, match="the worker has ended"):
        peer.receive()
