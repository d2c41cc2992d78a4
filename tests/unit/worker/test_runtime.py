"""Windows, cancellation and memory of a worker: who may send, when a block comes back, and what waits for what."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import sys
import threading
import time

import numpy as np
import pytest
from waiting import wait_until
from worker_peer import LIMITS, MEBIBYTE, running_worker

from naiad.memory.arena import ArenaLimits
from naiad.worker import runtime as runtime_module
from naiad.worker.api.control import is_model_ready
from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.sender import FINAL
from naiad.worker.api.tensor import Tensor
from naiad.worker.frames import FLAG_FINAL, Kind
from naiad.worker.runtime import WINDOW_RESPONSES

ONE = np.array([1], np.float32)
LARGE = np.arange(1 << 18, dtype=np.float32)


def response(value: float = 1, count: int = 1) -> InferenceResponse:
    return InferenceResponse([Tensor("Y", np.full(count, value, np.float32))])


class Held:
    """A decoupled model that keeps its requests' senders for the test; `sends` are its threads."""

    def initialize(self, args):
        self.senders = []
        self.requests = []

    def execute(self, requests):
        self.senders += [request.get_response_sender() for request in requests]


class Sending:
    """Sends on a thread; `count` have been sent so far."""

    def __init__(self, sender, responses) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(sender, responses), daemon=True)
        self._thread.start()

    def _run(self, sender, responses) -> None:
        try:
            for item in responses:
                sender.send(item)
                self.count += 1
            sender.send(flags=FINAL)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert self.error is None


def held(worker):
    """Send one request to a model of class Held and return its sender."""
    worker.peer.execute(ONE)
    worker.peer.wait(Kind.RETURNED)
    return worker.loop.model.senders.pop()


# The window.


def test_a_sender_stops_at_the_window_and_goes_on_with_credit():
    with running_worker(Held, is_decoupled=True) as worker:
        peer = worker.peer
        sending = Sending(held(worker), (response(index) for index in range(40)))
        frames = [peer.wait(Kind.RESPONSE) for _ in range(WINDOW_RESPONSES)]
        peer.sync()
        assert peer.kept(Kind.RESPONSE) == []
        assert sending.count == WINDOW_RESPONSES
        peer.say(Kind.CREDIT, frames[0].id, value=3)
        frames += [peer.wait(Kind.RESPONSE) for _ in range(3)]
        peer.sync()
        assert peer.kept(Kind.RESPONSE) == []
        peer.say(Kind.CREDIT, frames[0].id, value=100)
        frames += [peer.wait(Kind.RESPONSE) for _ in range(22)]
        sending.join()
        assert [peer.outputs(frame)["Y"].tolist() for frame in frames[:40]] == [[index] for index in range(40)]
        assert [frame.flags for frame in frames] == [0] * 40 + [FLAG_FINAL]


def test_no_credit_is_lost_when_it_comes_while_responses_go():
    with running_worker(Held, is_decoupled=True) as worker:
        peer = worker.peer
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            senders = [held(worker) for _ in range(3)]
            sendings = [Sending(sender, (response() for _ in range(300))) for sender in senders]
            for _ in range(3 * 301):
                frame = peer.wait(Kind.RESPONSE)
                if frame.size:
                    peer.release(frame)
                peer.say(Kind.CREDIT, frame.id, value=1)
            for sending in sendings:
                sending.join()
        finally:
            sys.setswitchinterval(interval)


def test_the_end_alone_needs_no_credit():
    with running_worker(Held, is_decoupled=True) as worker:
        sending = Sending(held(worker), (response() for _ in range(WINDOW_RESPONSES)))
        frames = [worker.peer.wait(Kind.RESPONSE) for _ in range(WINDOW_RESPONSES + 1)]
        sending.join()
        assert (frames[-1].flags, frames[-1].size) == (FLAG_FINAL, 0)


def test_a_slow_reader_holds_up_its_own_request_only():
    with running_worker(Held, is_decoupled=True) as worker:
        slow = Sending(held(worker), (response() for _ in range(WINDOW_RESPONSES + 1)))
        frames = [worker.peer.wait(Kind.RESPONSE) for _ in range(WINDOW_RESPONSES)]
        Sending(held(worker), (response() for _ in range(3))).join()
        assert all(frame.id != frames[0].id for frame in worker.peer.kept(Kind.RESPONSE))
        worker.peer.say(Kind.CREDIT, frames[0].id, value=1)
        slow.join()


# Cancellation.


def test_a_cancelled_request_frees_its_sender_and_still_says_its_end():
    with running_worker(Held, is_decoupled=True) as worker:
        peer = worker.peer
        sender = held(worker)
        sending = Sending(sender, (response() for _ in range(100)))
        first, *_ = [peer.wait(Kind.RESPONSE) for _ in range(WINDOW_RESPONSES)]
        assert not sender.is_cancelled()
        peer.say(Kind.CANCEL, first.id)
        sending.join()
        assert sending.count == 100
        last = peer.wait(Kind.RESPONSE)
        assert (last.id, last.flags, last.tail) == (first.id, FLAG_FINAL, b"")
        assert peer.kept(Kind.RESPONSE) == []


def test_a_model_sees_a_cancellation_while_it_computes():
    class Model:
        def execute(self, requests):
            while not requests[0].is_cancelled():
                pass
            return [response()]

    with running_worker(Model) as worker:
        first, _ = worker.peer.execute(ONE)
        worker.peer.say(Kind.CANCEL, first)
        assert worker.peer.said(worker.peer.next_frame()) == [[1]]


def test_a_request_that_was_cancelled_before_its_turn_is_so_when_it_comes():
    """Its EXECUTE has come, its cancellation too, and the model is still at another batch."""
    may_go = threading.Event()

    class Model:
        def execute(self, requests):
            may_go.wait(10)
            cancelled = [request.is_cancelled() for request in requests]
            return [response(value) for value in cancelled]

    with running_worker(Model) as worker:
        peer = worker.peer
        peer.execute(ONE)
        while worker.runtime.work or not worker.runtime.open:
            time.sleep(0)
        first, _ = peer.execute(ONE, ONE, ONE)
        last, _ = peer.execute(ONE)
        peer.say(Kind.CANCEL, first + 1)
        peer.say(Kind.CANCEL, last)
        worker.runtime.channel.poll()
        may_go.set()
        assert [peer.said(peer.next_frame()) for _ in range(3)] == [[[0]], [[0], [1], [0]], [[1]]]
        peer.say(Kind.CANCEL, first)
        peer.sync()
        assert worker.runtime._cancelled_early == set()


def test_the_cancellation_of_a_request_that_has_ended_is_forgotten():
    with running_worker(Held, is_decoupled=True) as worker:
        sender = held(worker)
        sender.send(flags=FINAL)
        ended = worker.peer.wait(Kind.RESPONSE)
        worker.peer.say(Kind.CANCEL, ended.id)
        worker.peer.say(Kind.CREDIT, ended.id, value=5)
        worker.peer.sync()
        assert not sender.is_cancelled()
        assert worker.runtime._cancelled_early == set()


# Responses that can't be sent.


def test_a_response_that_cannot_be_sent_leaves_the_request_open():
    class Broken(Tensor):
        def wire(self):
            raise RuntimeError("broken")

    with running_worker(Held, is_decoupled=True) as worker:
        sender = held(worker)
        for _ in range(WINDOW_RESPONSES + 1):
            with pytest.raises(RuntimeError, match="broken"):
                sender.send(InferenceResponse([Broken("Y", ONE)]), FINAL)
        sender.send(response(7), FINAL)
        frame = worker.peer.wait(Kind.RESPONSE)
        assert worker.peer.outputs(frame)["Y"].tolist() == [7]
        with pytest.raises(TritonModelException, match="has been closed"):
            sender.send(response())


def test_half_surrogates_and_long_texts_reach_the_server_as_text():
    with running_worker(Held, is_decoupled=True) as worker:
        sender = held(worker)
        error = runtime_module.InferenceResponse(parameters={"p": "a\ud800b", "n": 1 << 40})
        sender.send(error)
        assert json.loads(worker.peer.wait(Kind.RESPONSE).tail)["parameters"] == {"p": "a?b", "n": 1 << 40}
        worker.runtime.log("INFO", "é\udcff")
        assert json.loads(worker.peer.wait(Kind.LOG).tail)["message"] == "é?"
        sender.send(flags=FINAL)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 63, -(1 << 63) - 1])
def test_a_parameter_that_the_wire_cannot_hold_is_refused(value):
    with pytest.raises(TritonModelException, match="must be finite and, as an int, have 64 bits"):
        InferenceResponse(parameters={"p": value})


# Input blocks.


class Keeping:
    """Keeps what the test's `keep` returns for a batch; `kept` is it."""

    keep = staticmethod(lambda requests: None)

    def execute(self, requests):
        self.kept = type(self).keep(requests)
        return [response() for _ in requests]


def _raise_and_return(requests):
    array = requests[0].inputs()[0].as_numpy()
    try:
        raise ValueError(array)
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    "keep",
    [
        lambda requests: None,
        lambda requests: requests[0].inputs()[0].as_numpy().copy(),
        lambda requests: requests[0].inputs()[0].shape(),
        lambda requests: requests[0].request_id(),
        lambda requests: float(requests[0].inputs()[0].as_numpy()[0]),
    ],
    ids=["nothing", "a copy", "a shape", "an id", "a value"],
)
def test_an_input_block_is_free_with_the_result_when_nothing_of_it_is_kept(keep):
    with running_worker(type("Model", (Keeping,), {"keep": staticmethod(keep)})) as worker:
        for _ in range(3):
            _, block = worker.peer.execute(ONE, ONE)
            assert worker.peer.settle(worker.peer.next_frame(), block)
        assert worker.peer.arena.block_count == 0
        worker.peer.sync()
        assert worker.peer.released() == []


@pytest.mark.parametrize(
    "keep",
    [
        lambda requests: requests,
        lambda requests: requests[0],
        lambda requests: requests[0].inputs()[0],
        lambda requests: requests[0].inputs()[0].as_numpy(),
        lambda requests: requests[1].inputs()[0].as_numpy()[:1].reshape(1, 1).view(np.uint8),
        lambda requests: memoryview(requests[0].inputs()[0].as_numpy()),
        lambda requests: np.from_dlpack(requests[0].inputs()[0]),
        lambda requests: functools.partial(np.sum, requests[0].inputs()[0].as_numpy()),
        _raise_and_return,
    ],
    ids=["requests", "request", "tensor", "array", "view", "memoryview", "dlpack", "partial", "traceback"],
)
def test_an_input_block_is_released_once_when_the_last_that_was_kept_goes(keep):
    with running_worker(type("Model", (Keeping,), {"keep": staticmethod(keep)})) as worker:
        peer = worker.peer
        _, block = peer.execute(ONE, ONE)
        assert not peer.settle(peer.next_frame(), block)
        peer.sync()
        gc.collect()
        assert peer.released() == []
        worker.loop.model.kept = None
        gc.collect()
        peer.wait_released(block)
        peer.sync()
        assert peer.released() == []


def test_an_input_that_is_kept_is_not_overwritten():
    with running_worker(type("Model", (Keeping,), {"keep": lambda requests: requests[0].inputs()[0].as_numpy()})) as worker:
        worker.peer.execute(ONE)
        worker.peer.next_frame()
        kept = worker.loop.model.kept
        for value in range(5):
            worker.peer.execute(np.array([value], np.float32))
            worker.peer.next_frame()
        assert kept.tolist() == [1]


def test_a_model_that_keeps_its_last_exception_keeps_no_more_than_that_batch():
    class Model:
        def execute(self, requests):
            array = requests[0].inputs()[0].as_numpy()
            try:
                raise ValueError(array.sum())
            except ValueError as error:
                self.error = error
                raise

    with running_worker(Model) as worker:
        peer = worker.peer
        blocks = []
        for _ in range(4):
            _, block = peer.execute(ONE)
            assert not peer.settle(peer.wait(Kind.RETURNED), block)
            blocks.append((block.segment, block.offset))
        gc.collect()
        released = set(peer.released())
        while len(released) < 3:
            peer.receive()
            released |= set(peer.released())
        assert released <= set(blocks)
        assert peer.arena.block_count == 1


def test_a_block_that_is_returned_as_output_is_free_with_the_result():
    class Model:
        def execute(self, requests):
            return [InferenceResponse([Tensor("Y", requests[0].inputs()[0].as_numpy())])]

    with running_worker(Model) as worker:
        _, block = worker.peer.execute(LARGE)
        result = worker.peer.next_frame()
        assert np.array_equal(worker.peer.outputs(result)["Y"], LARGE)
        worker.peer.sync()
        assert worker.peer.settle(result, block) or worker.peer.released() == [(block.segment, block.offset)]


def test_a_batch_that_failed_gives_its_block_back():
    class Model:
        def execute(self, requests):
            array = requests[0].inputs()[0].as_numpy()
            raise ValueError(array.shape)

    with running_worker(Model) as worker:
        _, block = worker.peer.execute(LARGE)
        assert worker.peer.settle(worker.peer.wait(Kind.RETURNED), block)


# Output blocks.


class Large:
    """Answers each request by 1 MiB, or as many as its input says."""

    def execute(self, requests):
        return [response(1, int(request.inputs()[0].as_numpy()[0] * MEBIBYTE // 4)) for request in requests]


def test_a_full_arena_waits_until_the_server_has_given_a_block_back():
    limits = ArenaLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE)
    with running_worker(Large, limits=limits) as worker:
        first, _ = worker.peer.execute(ONE)
        held_frames = [worker.peer.next_frame()]
        worker.peer.execute(ONE)
        held_frames.append(worker.peer.next_frame())
        third, _ = worker.peer.execute(ONE)
        worker.peer.release(held_frames[0])
        assert worker.peer.next_frame().id == third
        assert first < third


def test_a_response_that_never_fits_is_an_error_that_names_the_option():
    limits = ArenaLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE, how_to_raise="Raise the limit.")
    with running_worker(Large, limits=limits) as worker:
        said = worker.peer.answer(np.array([3], np.float32))
        assert said[0].startswith("no shared memory for 3145728 bytes")
        assert said[0].endswith("Raise the limit.")
        assert worker.peer.answer(ONE) == [[1] * (MEBIBYTE // 4)]


def test_a_streamed_response_that_never_fits_is_an_error_and_the_stream_goes_on():
    limits = ArenaLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE)
    with running_worker(Held, is_decoupled=True, limits=limits) as worker:
        sender = held(worker)
        sender.send(response(1, MEBIBYTE))
        assert "no shared memory" in json.loads(worker.peer.wait(Kind.RESPONSE).tail)["error"][1]
        sender.send(response(2), FINAL)
        assert worker.peer.outputs(worker.peer.wait(Kind.RESPONSE))["Y"].tolist() == [2]


class AsyncLarge(Large):
    async def execute(self, requests):
        return super().execute(requests)


@pytest.mark.parametrize("model", [Large, AsyncLarge])
def test_memory_is_given_back_when_there_is_no_work(monkeypatch, model):
    """Also when the server gives the blocks back late."""
    monkeypatch.setattr(runtime_module, "_TRIM_SECONDS", 0.001)
    with running_worker(model) as worker:
        worker.peer.execute(np.array([30], np.float32))
        result = worker.peer.next_frame()
        monkeypatch.setattr(worker.runtime, "trim", _counted(worker.runtime.trim, trims := []))
        wait_until(lambda: len(trims) > 1)
        worker.peer.release(result)
        assert worker.peer.wait(Kind.SEGMENT_GONE).id == result.segment
        assert worker.peer.answer(ONE) == [[1] * (MEBIBYTE // 4)]


def _counted(work, calls):
    def run():
        calls.append(1)
        work()

    return run


def test_output_blocks_are_the_servers_until_it_gives_them_back():
    with running_worker(Large, limits=LIMITS) as worker:
        frames = []
        for _ in range(5):
            worker.peer.execute(ONE)
            frames.append(worker.peer.next_frame())
        assert len({(frame.segment, frame.offset) for frame in frames}) == 5
        for frame in frames:
            worker.peer.release(frame)
        worker.peer.sync()
        assert worker.runtime._arena.block_count == 0


# Everything at once.


class Busy:
    """A decoupled model whose threads wait for credit, for answers of other models and of the server, in plain and in async
    code, while batches come; each request is ended when its thread is through.
    """

    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            kind = int(request.inputs()[0].as_numpy()[0])
            thread = threading.Thread(target=self._run, args=(kind, request.get_response_sender()), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _run(self, kind, sender):
        work = (self._stream, self._call, self._ask, self._call_async)[kind]
        work(sender)
        sender.send(response(kind), FINAL)

    def _stream(self, sender):
        for index in range(60):
            sender.send(response(index))

    def _call(self, sender):
        for index in range(20):
            assert called(index).exec().output_tensors()[0].as_numpy().tolist() == [index]

    def _ask(self, sender):
        for _ in range(20):
            assert is_model_ready("other")

    def _call_async(self, sender):
        async def main():
            for _ in range(3):
                responses = await asyncio.gather(*[called(index).async_exec() for index in range(10)])
                assert [item.output_tensors()[0].as_numpy().tolist() for item in responses] == [[index] for index in range(10)]

        asyncio.run(main())


def called(value: float) -> InferenceRequest:
    return InferenceRequest(model_name="other", inputs=[Tensor("X", np.array([value], np.float32))])


def test_no_thread_is_forgotten_when_all_wait_for_different_things():
    with running_worker(Busy, is_decoupled=True) as worker:
        peer = worker.peer
        ended = 0
        arrays = [np.array([kind], np.float32) for kind in (0, 1, 2, 3)]
        blocks = dict(peer.execute(*arrays) for _ in range(8))
        while ended < 32:
            frame = peer.next_frame()
            if frame.kind == Kind.RESPONSE:
                assert "error" not in json.loads(frame.tail)
                ended += frame.flags & FLAG_FINAL
                peer.say(Kind.CREDIT, frame.id, value=1)
            elif frame.kind == Kind.CALL:
                message = json.loads(frame.tail)
                value = peer.outputs(frame._replace(tail=json.dumps({"outputs": message["inputs"]}).encode()))["X"]
                peer.respond(frame, value, flags=FLAG_FINAL)
            elif frame.kind == Kind.QUERY:
                peer.say(Kind.ANSWER, frame.id, {"value": True})
            elif frame.kind == Kind.RETURNED:
                peer.settle(frame, blocks[frame.id])
            if frame.size:
                peer.release(frame)
            peer.released()
        for thread in worker.loop.model.threads:
            thread.join(10)
            assert not thread.is_alive()
        peer.sync()
        peer.released()
        assert (worker.runtime.open, worker.runtime._calls, worker.runtime._answers) == ({}, {}, {})
        assert (worker.runtime._arena.block_count, peer.arena.block_count) == (0, 0)
